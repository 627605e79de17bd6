package linear

// Base is the image's memory, shared by all and not to be written to. It is
// there when it is first asked for.
func (img *Image) Base() ([]byte, error) {
	img.loading.Lock()
	base := img.base
	img.loading.Unlock()
	if base != nil || img.Bytes == 0 {
		return base, nil
	}
	if err := img.loadBase(); err != nil {
		return nil, err
	}
	return img.base, nil
}
