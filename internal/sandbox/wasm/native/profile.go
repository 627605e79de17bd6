//go:build native && profile

package native

// void __llvm_profile_set_filename(const char *);
// int __llvm_profile_write_file(void);
import "C"

import "errors"

// WriteProfile writes what the guests have executed so far, where they were
// compiled to count it; guest/build/native.sh compiles them again with that.
func WriteProfile(path string) error {
	C.__llvm_profile_set_filename(C.CString(path)) // kept by it
	if C.__llvm_profile_write_file() != 0 {
		return errors.New("the profile could not be written")
	}
	return nil
}
