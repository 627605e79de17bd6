package sandbox

import "context"

// Adopter is a Machines whose machines can be booted before anybody knows whose
// they will be.
type Adopter interface {
	Machines
	// Suspend has the machine of an instance use no processor: nothing may be asked of
	// the instance until it is adopted, but to close it.
	Suspend(in Instance) error
	// Adopt gives the machine of an instance, in which nothing has run, to an owner:
	// it becomes spec's Owner's Box. spec is what the instance was started with, but
	// for these two and for where the folders of its Mounts are: the same folders,
	// which were renamed. That there is such a machine already, or that spec asks for
	// another one than this, also because its image has changed since, is a
	// fault.Conflict; that it has ended a fault.Unavailable. After an error the machine
	// is nobody's, as before. ctx bounds the look at the image.
	Adopt(ctx context.Context, in Instance, spec Spec) error
}
