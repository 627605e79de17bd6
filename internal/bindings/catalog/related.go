package catalog

import "strings"

// groups are words that people and tools use for the same thing, in the form in which they
// are looked up. A word may be in several groups.
var groups = func() map[string][]string {
	all := map[string][]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(relatedWords), "\n") {
		words := strings.Fields(line)
		for i, w := range words {
			all[w] = append(append(all[w], words[:i]...), words[i+1:]...)
		}
	}
	return all
}()

const relatedWords = `
drive route direction navigate trip travel journey itinerary
far distance kilometer mile long
map place location address geocode coordinate position where
restaurant cafe hotel shop nearby place poi
weather forecast temperature rain climate
email mail message inbox
send post publish deliver
tell notify alert message post
chat conversation channel message thread
write create compose draft save
make create add new build generate
remove delete erase drop clear discard
change update edit modify set patch
show list get view display read
find search lookup query discover
fetch download get retrieve scrape crawl
browse navigate open visit page
website url page site web link
picture image photo screenshot illustration
draw chart plot graph diagram visualize render
film video movie clip recording
sound audio music song voice
talk speech say speak voice
folder directory
file document
rename move
copy duplicate clone
zip compress archive pack
unzip decompress extract unpack
bug issue ticket defect problem
task todo issue ticket reminder
meeting event appointment calendar schedule invite
repo repository project
pr pull merge request review
code source snippet
branch fork
version release tag revision
history log commit change
run execute start launch invoke
stop cancel end terminate kill abort
remember memory save store note
recall memory search read
fact observation knowledge note
connection relation link edge
person user contact people member account
customer client account
friend contact
buy order purchase checkout
money payment price cost currency
exchange convert currency rate
refund return reimburse
bill invoice payment charge
sell deal sale
database sql table query
row record entry item
count number total sum
sum add plus
average mean statistics
translate language convert
summary summarize digest abstract
read text content
secret password credential key token
login sign authenticate
server machine instance host vm
disk volume storage
backup snapshot copy
upload put store push
share publish permission grant
book paper article publication
news headline article
stock share price quote
time clock date now timezone
think reason plan step
echo repeat return
environment variable setting configuration
press click tap push
type fill enter input
test check verify validate
`

// related are words that tools may use for those of a query, in their order; none of them
// stands in the query.
func related(words []string) []string {
	seen := map[string]bool{}
	for _, w := range words {
		seen[w] = true
	}
	var found []string
	for _, w := range words {
		for _, form := range []string{w, strings.TrimSuffix(w, "s"), strings.TrimSuffix(w, "es"), strings.TrimSuffix(w, "ing"), strings.TrimSuffix(w, "ing") + "e"} {
			for _, other := range groups[form] {
				if !seen[other] {
					seen[other] = true
					found = append(found, other)
				}
			}
		}
	}
	return found[:min(len(found), maxRelated)]
}

const (
	// maxRelated bounds the words that a search adds.
	maxRelated = 40
	// relatedWorth is what a related word counts beside one of the query.
	relatedWorth = 0.4
)
