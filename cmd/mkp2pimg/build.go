package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"mkp2pimg/initramfs"
	"mkp2pimg/internal/pipeline"
)

func newBuild() *cobra.Command {
	var o pipeline.Options
	var asJSON bool
	c := &cobra.Command{
		Use:   "build",
		Short: "build the image",
		Long: `Build the image into a directory to boot from: vmlinuz, initrd.zst, boot.ipxe,
manifest.json, an SPDX bill of materials, the report and diff of the driver
edits, the lock file and SHA256SUMS. --format adds to it:

  split  the initramfs also as two files named by their content, so that caches
         keep the firmware; boot.ipxe loads these
  disk   disk.img, which "mkp2pimg flash" writes to a USB stick
  iso    mkp2pimg.iso, for the virtual drive of a BMC
  uki    mkp2pimg.efi, which UEFI boots as it is, and with Secure Boot if signed
  oci    mkp2pimg.oci.tar, which "mkp2pimg push" brings to a registry

Inputs come from Debian, verified by the archive's signature, and the parts of
a driver that Debian lacks from NVIDIA, verified by the git tree of its source
and its published checksums; or from --source and --userspace. All are pinned
in a lock file and kept in a cache. Modules are compiled in a root of Debian
packages of their own, in user namespaces; nothing is installed on the host.`,
		Example: `  mkp2pimg build
  mkp2pimg build --format disk,iso
  mkp2pimg build --format uki --sign-key db.key --sign-cert db.crt --sign-modules
  mkp2pimg build --format disk --gpu ada,3090 --profile minimal
  mkp2pimg build --edits minimal --out out-minimal
  mkp2pimg build --driver 580 --lock 580.lock --out out-580
  mkp2pimg build --driver 570 --source ogkm-570.tar.gz --userspace NVIDIA-Linux-x86_64-570.211.01.run
  mkp2pimg build --offline --lock nightly.lock`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Version = version()
			follow(&o, c.ErrOrStderr())
			result, err := pipeline.Build(c.Context(), o)
			if err != nil {
				return err
			}
			return printBuild(c.OutOrStdout(), result, asJSON)
		},
	}
	addInputFlags(c, &o)
	f := c.Flags()
	f.StringVarP(&o.Out, "out", "o", "out", "directory of the image")
	f.StringSliceVar(&o.Formats, "format", []string{pipeline.FormatNetboot}, "forms of the image, separated by commas: "+strings.Join(pipeline.Formats, ", ")+";\n"+
		"the netboot directory is always made")
	f.StringSliceVar(&o.GPUs, "gpu", []string{pipeline.AllGPUs}, "GPUs that the image has firmware for, separated by commas: all, families\n"+
		"("+strings.Join(pipeline.Families(), ", ")+"), words of names, or PCI ids")
	f.StringVar((*string)(&o.Profile), "profile", string(initramfs.Lab), "lab: with the drivers of network cards; minimal: without")
	f.StringVar(&o.SignKey, "sign-key", "", "sign the UKI with the RSA key in this file (PEM), for Secure Boot")
	f.StringVar(&o.SignCert, "sign-cert", "", "certificate of that key (PEM), which the firmware has in its db")
	f.BoolVar(&o.SignModules, "sign-modules", false, "sign the driver's modules with the key too: with Secure Boot a kernel loads no others")
	f.StringVar(&o.Source, "source-root", ".", "directory of mkp2pimg's own Go module, whose programs go into the image")
	f.StringVar(&o.Toolchain, "toolchain", pipeline.ToolchainSandbox, `compiler: "sandbox" (Debian packages) or "host"`)
	f.StringVar(&o.Edits, "edits", "auto", "P2P edits of the driver: auto, minimal, none or all")
	f.IntVarP(&o.Jobs, "jobs", "j", 0, "compiler processes at a time (default: one for each CPU)")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return c
}

func printBuild(w io.Writer, r *pipeline.Result, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	_, err := fmt.Fprintf(w, "%s: driver %s (%d edits), kernel %s, initrd %.1f MB (%.1f MB unpacked)\n",
		r.Out, r.Driver, len(r.Edits), r.Kernel, float64(r.Initrd.Packed)/1e6, float64(r.Initrd.Raw)/1e6)
	return err
}
