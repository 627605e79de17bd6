// Package pattern decides what a pattern that somebody else wrote may cost.
//
// A regular expression or a glob of a client, a model or another server is work
// that its writer orders and the server does. Here its size is known before it is
// compiled, its cost is counted while it matches, whoever asked for it can stop it
// at any moment, and all that matches for long shares half of the CPUs, in turns
// between the owners.
//
// The unit of cost is a step: one instruction of a compiled expression at one byte
// of the text. The work is never more than that; a step took 20 nanoseconds at the
// worst where it was measured, and 2 as a rule.
package pattern

import (
	"context"
	"runtime"

	"paddock/internal/fault"
)

// MaxSteps is what one search or listing may cost: a common expression of 15
// instructions goes through 280 MiB.
const MaxSteps = 4 << 30

const (
	// piece is how many steps are taken between two looks at the context: a few
	// milliseconds at the worst.
	piece = 1 << 18
	// free is how many steps a request takes without waiting for its turn.
	free = 16 * piece
)

// Meter counts the steps of one request, and ends it when they are used up or its
// context ends. It is for one goroutine, which closes it; one goroutine has one
// Meter at a time. The zero Meter allows nothing.
type Meter struct {
	ctx    context.Context
	owner  string
	left   int64
	unseen int64 // steps since the context was last looked at
	taken  int64 // steps in all, as far as they were looked at
	turn   *turn // what it holds; nil: nothing
	err    error
}

// NewMeter gives a meter for so many steps of work that is done for an owner.
func NewMeter(ctx context.Context, owner string, steps int64) *Meter {
	return &Meter{ctx: ctx, owner: owner, left: steps}
}

// Spend counts steps before they are taken. The error is the context's cause, or a
// fault of kind Exhausted, and stays the same from then on. Every few milliseconds
// of work it lets others go first.
func (m *Meter) Spend(steps int64) error {
	if m.err != nil {
		return m.err
	}
	if m.left -= steps; m.left < 0 || steps < 0 {
		m.err = fault.New(fault.Exhausted, "matching the pattern takes too long").
			WithHint("a simpler pattern, with smaller counted repetitions, or fewer and smaller texts")
		return m.err
	}
	if m.unseen += steps; m.unseen >= piece {
		m.look()
	}
	return m.err
}

// look is what happens between two pieces of work.
func (m *Meter) look() {
	m.taken += m.unseen
	m.unseen = 0
	m.turn.end()
	m.turn = nil
	runtime.Gosched()
	if m.ctx.Err() != nil {
		m.err = context.Cause(m.ctx)
	} else if m.taken >= free {
		m.turn, m.err = take(m.ctx, m.owner)
	}
}

// Close ends the count; others may go on. It works twice.
func (m *Meter) Close() {
	m.turn.end()
	m.turn = nil
}
