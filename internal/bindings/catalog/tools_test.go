package catalog

import (
	"encoding/json"
	"fmt"
	"strings"

	"paddock/internal/bindings"
)

// tool makes one of a line "name | description | parameters".
func tool(line string) bindings.Tool {
	parts := strings.Split(line, "|")
	properties := []string{}
	for _, p := range strings.Fields(parts[2]) {
		properties = append(properties, fmt.Sprintf("%q:{\"type\":\"string\"}", p))
	}
	return bindings.Tool{
		Name: strings.TrimSpace(parts[0]), Description: strings.TrimSpace(parts[1]),
		Input: json.RawMessage(`{"type":"object","properties":{` + strings.Join(properties, ",") + `}}`),
	}
}

// known are the tools of the reference servers by their names and parameters; the
// descriptions are our words for what they do.
var known = map[string]string{
	"everything": `
		echo | Gives back the text that it was given | message
		get-annotated-message | Shows messages with annotations for audience and priority | messageType includeImage
		get-env | Gives the environment variables of the server | 
		get-resource-links | Gives links to resources | count
		get-resource-reference | Gives one resource embedded in the result | resourceType resourceId
		get-structured-content | Gives the weather of a city as structured data | location
		get-sum | Adds two numbers | a b
		get-tiny-image | Gives a small picture | 
		gzip-file-as-resource | Compresses a file and gives it as a resource | name data outputType
		toggle-simulated-logging | Starts or stops log messages | 
		toggle-subscriber-updates | Starts or stops updates of resources | 
		trigger-long-running-operation | Takes a while and reports progress | duration steps
		simulate-research-query | Pretends to research a topic in stages | topic ambiguous`,
	"filesystem": `
		read_file | Reads a file as text; kept for older clients | path tail head
		read_text_file | Reads the text of a file, whole or its first or last lines | path tail head
		read_media_file | Reads a picture or a sound as base64 | path
		read_multiple_files | Reads several files at once | paths
		write_file | Writes a new file or replaces the content of one | path content
		edit_file | Replaces lines of a text file and shows the difference | path edits dryRun
		create_directory | Makes a folder, and those above it | path
		list_directory | Lists what is in a folder | path
		list_directory_with_sizes | Lists what is in a folder, with sizes | path sortBy
		directory_tree | Gives a folder and all below it as a tree | path excludePatterns
		move_file | Moves or renames files and folders | source destination
		search_files | Finds files whose names match a pattern | path pattern excludePatterns
		get_file_info | Tells size, times and permissions of a file | path
		list_allowed_directories | Lists the folders that may be used | `,
	"memory": `
		create_entities | Adds entities to the knowledge graph | entities
		create_relations | Connects entities of the knowledge graph | relations
		add_observations | Adds facts to entities | observations
		delete_entities | Removes entities and their relations | entityNames
		delete_observations | Removes facts from entities | deletions
		delete_relations | Removes connections between entities | relations
		read_graph | Gives the whole knowledge graph | 
		search_nodes | Finds entities of the graph by words | query
		open_nodes | Gives entities by their names | names`,
	"sequential-thinking": `
		sequentialthinking | Thinks about a problem in steps that may be revised and branch | thought nextThoughtNeeded thoughtNumber totalThoughts`,
}

// made are ten servers with twenty tools each.
var made = map[string]string{
	"calendar": "event meeting reminder attendee", "mail": "message draft label attachment", "crm": "customer deal lead contact",
	"git-host": "repository pull_request issue branch", "tickets": "ticket comment sprint assignee", "database": "table row index query",
	"storage": "bucket object upload version", "shop": "order product refund invoice", "chat": "channel thread reaction user", "cloud": "server volume network snapshot",
}

// servers gives all of them, 237 tools.
func servers() map[string][]bindings.Tool {
	all := map[string][]bindings.Tool{}
	for name, lines := range known {
		for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
			all[name] = append(all[name], tool(line))
		}
	}
	for name, nouns := range made {
		for noun := range strings.FieldsSeq(nouns) {
			plain := strings.ReplaceAll(noun, "_", " ")
			for _, line := range []string{
				"create_%[1]s | Creates a new %[2]s in %[3]s | name details", "list_%[1]ss | Lists every %[2]s of %[3]s, page by page | cursor limit",
				"get_%[1]s | Gets one %[2]s by its id | %[1]s_id", "update_%[1]s | Changes fields of a %[2]s | %[1]s_id fields", "delete_%[1]s | Deletes a %[2]s for good | %[1]s_id",
			} {
				all[name] = append(all[name], tool(fmt.Sprintf(line, noun, plain, name)))
			}
		}
	}
	return all
}

// wanted are what people look for, and where it is.
var wanted = []struct{ query, server, tool string }{
	{"add two numbers", "everything", "get-sum"},
	{"sum", "everything", "get-sum"},
	{"getSum", "everything", "get-sum"},
	{"environment variables", "everything", "get-env"},
	{"what is the weather in a city", "everything", "get-structured-content"},
	{"compress a file with gzip", "everything", "gzip-file-as-resource"},
	{"long running operation progress", "everything", "trigger-long-running-operation"},
	{"repeat a message back to me", "everything", "echo"},
	{"tiny picture", "everything", "get-tiny-image"},
	{"read a text file", "filesystem", "read_text_file"},
	{"reading many files at once", "filesystem", "read_multiple_files"},
	{"write content to a file", "filesystem", "write_file"},
	{"rename a file", "filesystem", "move_file"},
	{"make a new directory", "filesystem", "create_directory"},
	{"list folder with sizes", "filesystem", "list_directory_with_sizes"},
	{"find files by pattern", "filesystem", "search_files"},
	{"file permissions and size", "filesystem", "get_file_info"},
	{"edit lines in a file", "filesystem", "edit_file"},
	{"directory tree", "filesystem", "directory_tree"},
	{"which directories am I allowed to use", "filesystem", "list_allowed_directories"},
	{"knowledge graph", "memory", "read_graph"},
	{"add facts to an entity", "memory", "add_observations"},
	{"connect two entities", "memory", "create_relations"},
	{"search nodes", "memory", "search_nodes"},
	{"think step by step about a problem", "sequential-thinking", "sequentialthinking"},
	{"create an invoice", "shop", "create_invoice"},
	{"list pull requests", "git-host", "list_pull_requests"},
	{"delete calendar event", "calendar", "delete_event"},
	{"update a customer", "crm", "update_customer"},
	{"get snapsh", "cloud", "get_snapshot"},
}

// maps and web are servers of which people speak in other words than their tools.
var strange = map[string]string{
	"maps": `
		maps_directions | Gets directions between two points | origin destination mode
		maps_geocode | Turns an address into coordinates | address
		maps_search_places | Searches for places | query location radius
		maps_distance_matrix | Measures distance and duration between points | origins destinations
		maps_elevation | Gives the height above the sea | locations`,
	"browser": `
		browser_navigate | Opens a URL | url
		browser_take_screenshot | Takes a screenshot of the page | filename fullPage
		browser_fill_form | Fills fields of a form | fields
		browser_close | Closes the page | `,
	"money": `
		get_exchange_rate | Gives the rate between two currencies | base quote
		create_refund | Refunds a charge | charge amount`,
	"charts": `
		generate_pie_chart | Generates a pie chart | data
		generate_line_chart | Generates a line chart | data`,
}

// meant are looked for in words that neither name nor description has.
var meant = []struct{ query, server, tool string }{
	{"drive from Berlin to Munich", "maps", "maps_directions"},
	{"how do I travel to the airport", "maps", "maps_directions"},
	{"where is the Eiffel tower", "maps", "maps_geocode"},
	{"good restaurants around here", "maps", "maps_search_places"},
	{"how far is it to Paris", "maps", "maps_distance_matrix"},
	{"visit a website", "browser", "browser_navigate"},
	{"photo of the page", "browser", "browser_take_screenshot"},
	{"convert dollars to euros", "money", "get_exchange_rate"},
	{"reimburse a buyer", "money", "create_refund"},
	{"draw a pie", "charts", "generate_pie_chart"},
	{"plot a line", "charts", "generate_line_chart"},
	{"erase a bucket", "storage", "delete_bucket"},
	{"modify a lead", "crm", "update_lead"},
	{"schedule an appointment", "calendar", "create_event"},
	{"open a new bug", "tickets", "create_ticket"},
	{"remember something", "memory", "create_entities"},
	{"rain tomorrow", "everything", "get-structured-content"},
	{"duplicate of a disk", "cloud", "create_snapshot"},
	{"show the records of a database", "database", "list_rows"},
	{"unpack an archive", "everything", "gzip-file-as-resource"},
}
