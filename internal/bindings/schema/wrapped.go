package schema

import "encoding/json"

// Wrapper is the member in which servers made with FastMCP or the protocol's Python SDK
// send a value that is not an object.
const Wrapper = "result"

// wrapLimits bound the schemas that are looked at.
var wrapLimits = Limits{Bytes: 256 << 10, Depth: 64, Values: 20_000}

// Unwrapped gives the schema of the value that an output schema wraps: the one of an object
// whose only member is [Wrapper], which it always has. It is nil where the schema is
// another one.
func Unwrapped(output json.RawMessage) json.RawMessage {
	if len(output) == 0 {
		return nil
	}
	v, err := Decode(output, wrapLimits)
	if err != nil || v.Kind != Object || v.Get("type").Text != "object" {
		return nil
	}
	properties, required := v.Get("properties"), v.Get("required")
	if len(properties.Members) != 1 || properties.Members[0].Name != Wrapper {
		return nil
	}
	marked := v.Get("x-fastmcp-wrap-result").Bool
	if !marked && (len(required.Items) != 1 || required.Items[0].Text != Wrapper) {
		return nil
	}
	if more := v.Get("additionalProperties"); more.Bool || more.Kind == Object || v.Get("patternProperties").Kind != None {
		return nil
	}
	inner := properties.Members[0].Value
	if inner.Kind != Object {
		return json.RawMessage("{}")
	}
	members := inner.Members
	for _, name := range []string{"$defs", "definitions"} { // what its references point to
		if defs := v.Get(name); defs.Kind != None && inner.Get(name).Kind == None {
			members = append(members[:len(members):len(members)], Member{Name: name, Value: defs})
		}
	}
	inner.Members = members
	return json.RawMessage(inner.JSON())
}
