package confine

// limitsHere are the limits that only this system has.
var limitsHere []limit
