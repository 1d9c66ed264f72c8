package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"mkp2pimg/images"
	"mkp2pimg/images/disk"
	"mkp2pimg/images/flash"
)

func newFlash() *cobra.Command {
	var yes, force bool
	c := &cobra.Command{
		Use:   "flash IMAGE [DEVICE]",
		Short: "write a disk image to a USB stick",
		Long: `Write a disk image, made with "mkp2pimg build --format disk", to a device, read it
back and compare. IMAGE is disk.img or the directory that it is in. The
partition for reports grows to the size of the device, and is emptied.

Without DEVICE the devices that may be written to are listed. A device that is
in use, or not removable, is refused. Nothing is written before you agree.`,
		Example: `  mkp2pimg flash out
  mkp2pimg flash out/disk.img /dev/sdb`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			file, err := imageFile(args[0])
			if err != nil {
				return err
			}
			image, err := disk.Open(file)
			if err != nil {
				return err
			}
			defer image.Close()
			if err := image.Verify(c.Context()); err != nil {
				return err
			}
			if len(args) == 1 {
				return listDevices(c.OutOrStdout(), image)
			}
			d, err := flash.Find("/", args[1])
			if err != nil {
				return usageError{err}
			}
			if err := flash.Check(d, force); err != nil {
				return err
			}
			grown, err := image.Grow(d.Size)
			if err != nil {
				return fmt.Errorf("%s: %w", d.Path(), err)
			}
			if !yes && !agreed(c.Context(), c.InOrStdin(), c.ErrOrStderr(), d) {
				return cmp.Or(c.Context().Err(), errors.New("nothing was written: you did not agree (--yes agrees beforehand)"))
			}
			err = flash.ToDevice(c.Context(), d, grown, showProgress(c.ErrOrStderr()))
			if errors.Is(err, context.Canceled) {
				fmt.Fprintf(c.ErrOrStderr(), "mkp2pimg: interrupted; %s does not boot now, write it again\n", d.Path())
				return quietError{exitInterrupted}
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: written and compared; driver %s, kernel %s\n", d.Path(), image.Manifest.Driver, image.Manifest.Kernel)
			return err
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&force, "force", false, "write even to a device that is in use or not removable")
	return c
}

// imageFile is the disk image that an argument means. In a directory it is compared
// with its checksum there, which covers the boot loaders too.
func imageFile(arg string) (string, error) {
	st, err := os.Stat(arg)
	if err != nil || !st.IsDir() {
		return arg, err
	}
	if _, err := images.Open(arg); err != nil {
		return "", err
	}
	return filepath.Join(arg, disk.Name), nil
}

// listDevices lists the devices that the image may be written to.
func listDevices(w io.Writer, image *disk.Disk) error {
	list, err := flash.Devices("/")
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	found := false
	for _, d := range list {
		if _, err := image.Grow(d.Size); err != nil || flash.Check(d, false) != nil {
			continue
		}
		found = true
		fmt.Fprintf(t, "%s\t%s\t%s\n", d.Path(), humanize.Bytes(uint64(d.Size)), d.Model)
	}
	if !found {
		return errors.New("there is no removable device that is large enough and not in use: plug one in, unmount it, or name a device")
	}
	return t.Flush()
}

// agreed shows what will be lost and asks. It waits no longer than ctx.
func agreed(ctx context.Context, in io.Reader, out io.Writer, d *flash.Device) bool {
	fmt.Fprintf(out, "%s  %s  %s\n", d.Path(), humanize.Bytes(uint64(d.Size)), d.Model)
	for _, use := range d.Uses {
		fmt.Fprintf(out, "  %s\n", use)
	}
	if len(d.Partitions) > 0 {
		fmt.Fprintf(out, "  partitions: %s\n", strings.Join(d.Partitions, ", "))
	}
	fmt.Fprintf(out, "All that is on it will be lost. Type %s to go on: ", d.Name)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // without an answer there is none
		answer <- line
	}()
	select {
	case line := <-answer:
		return strings.TrimSpace(line) == d.Name
	case <-ctx.Done():
		return false
	}
}

// showProgress draws a bar on a terminal.
func showProgress(w io.Writer) flash.Progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	var bar *progressbar.ProgressBar
	verifying := false
	return func(verify bool, done, total int64) {
		if bar == nil || verify != verifying {
			what := map[bool]string{false: "write", true: "compare"}[verify]
			bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(f), progressbar.OptionShowBytes(true),
				progressbar.OptionSetDescription(what), progressbar.OptionClearOnFinish())
			verifying = verify
		}
		_ = bar.Set64(done) // a bar that can't be drawn must not stop the work
	}
}
