package modules

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Insert loads the kernel module in a file with finit_module(2). The image's
// modules are not compressed. The error is the kernel's.
func Insert(file, options string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), options, 0); err != nil {
		return fmt.Errorf("finit_module: %w", err)
	}
	return nil
}
