package wire

import "context"

// Quiet tells whether nobody waits for anything of the child: no instance is busy or
// ends, no question is open, no stream.
func (c *Client) Quiet() bool {
	if c.streams.Len() > 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.asked) > 0 || len(c.dialling) > 0 || c.holding != nil {
		return false
	}
	for _, in := range c.instances {
		if in.occupied() {
			return false
		}
	}
	return true
}

// occupied tells whether somebody waits for something of the instance.
func (in *Instance) occupied() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.busy || in.closing
}

// Working tells whether processes live beside the child's instances. Only children
// that run processes answer it.
func (c *Client) Working(ctx context.Context) (bool, error) {
	c.mu.Lock()
	var all []*Instance
	for _, in := range c.instances {
		all = append(all, in)
	}
	c.mu.Unlock()
	for _, in := range all {
		list, err := in.Overseer().Processes(ctx)
		if err != nil || len(list) > 0 {
			return true, err
		}
	}
	return false, nil
}
