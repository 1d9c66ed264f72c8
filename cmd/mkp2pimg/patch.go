package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"mkp2pimg/kmod/catalog"
	"mkp2pimg/kmod/patch"
)

func newPatch() *cobra.Command {
	var p patcher
	c := &cobra.Command{
		Use:   "patch TREE|TARBALL",
		Short: "apply the P2P edits to a source tree of NVIDIA's open kernel modules",
		Long: `Apply the edits for peer-to-peer over BAR1 to a source tree, for those who build the
driver themselves, with DKMS or otherwise. Each edit is reported as applied, not
needed and why, or refused. If one is refused, nothing is written.

TREE is a whole source tree of open-gpu-kernel-modules of any release from 535 on:
NVIDIA's, or a distribution's source package. Packages for DKMS ship the resource
manager precompiled and can't be edited. A tree with the edits of another P2P driver
is recognised and refused. A tree may be edited again: what is there already stays.

A TARBALL (.tar, .gz, .xz, .zst, .bz2) is never changed: with --output DIR it is
unpacked there and edited; --check and --diff need no DIR.

--edits says which edits are taken:
    auto     all that the tree needs; defaults that module options set as well are
             left to them (see "mkp2pimg options")
    minimal  only what peer-to-peer can't work without
    all      as auto, and the defaults as well: no module options are needed
    none     none, to see what would be left out, or only those of --kernel-headers

The edits for all GPU families go into a tree, since one driver serves them all;
--gpu leaves out those that none of the named GPUs needs.

Exit codes: 0 the edits are in the tree, or fit it (--check, --diff, --format);
65 they do not fit, the tree is not a whole one or carries the edits of another
driver, or --revert can't restore it. See also "mkp2pimg exit-codes".`,
		Example: `  mkp2pimg patch open-gpu-kernel-modules
  mkp2pimg patch --check --json open-gpu-kernel-modules
  mkp2pimg patch --kernel-headers /lib/modules/$(uname -r)/build open-gpu-kernel-modules
  mkp2pimg patch --diff nvidia-open-580.tar.xz > p2p.diff
  mkp2pimg patch --format quilt --output debian/patches .
  mkp2pimg patch --revert open-gpu-kernel-modules`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p.source, p.stdout = args[0], c.OutOrStdout()
			if err := p.check(); err != nil {
				return usageError{err}
			}
			// Reading a tree or a tarball does not look at the context.
			done := make(chan error, 1)
			go func() { done <- p.run() }()
			select {
			case err := <-done:
				return err
			case <-c.Context().Done():
				return context.Cause(c.Context())
			}
		},
	}
	f := c.Flags()
	f.StringVar(&p.edits, "edits", string(patch.Auto), "which edits: auto, minimal, all or none")
	f.StringArrayVar(&p.gpus, "gpu", nil, "take only edits that this GPU needs, once for each: a family (ada), words of a\n"+
		"name (4090) or a PCI id (default all families)")
	f.StringVar(&p.headers, "kernel-headers", "", "headers of a kernel, such as /lib/modules/$(uname -r)/build: adds the edits that\n"+
		"the driver needs to compile against it")
	f.BoolVar(&p.checkOnly, "check", false, "write nothing, only say whether the edits fit")
	f.BoolVar(&p.diff, "diff", false, "write no tree, but the edits as a patch: --format says which kind")
	f.StringVar(&p.format, "format", "", "kind of patch, implies --diff: diff (one unified diff), git (a mailbox for git am)\n"+
		"or quilt (a directory with a patch per edit and series) (default diff)")
	f.StringVarP(&p.output, "output", "o", "", "where the patch goes (default standard output; quilt: a directory), or the tree\n"+
		"of a tarball")
	f.BoolVar(&p.revert, "revert", false, "take the edits out again: the tree becomes what it was")
	f.BoolVar(&p.json, "json", false, "print the report as JSON (schema: patch-report.json of an image)")
	return c
}

// Kinds of patches.
const (
	formatDiff  = "diff"
	formatGit   = "git"
	formatQuilt = "quilt"
)

// patcher is one run of the command.
type patcher struct {
	source, edits, headers, format, output string
	gpus                                   []string
	checkOnly, diff, revert, json          bool

	families []patch.Family
	tarball  bool
	stdout   io.Writer
}

// check refuses command lines that make no sense, and completes the others.
func (p *patcher) check() error {
	info, err := os.Stat(p.source)
	if err != nil {
		return fmt.Errorf("TREE %q: %w: name a source tree or a tarball", p.source, err)
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return usageError{fmt.Errorf("%s is neither a directory nor a file: name a source tree or a tarball", p.source)}
	}
	p.tarball = !info.IsDir()
	if p.format != "" {
		p.diff = true
	} else if p.diff {
		p.format = formatDiff
	}
	modes := []patch.Mode{patch.Auto, patch.Minimal, patch.All, patch.None}
	switch {
	case !slices.Contains(modes, patch.Mode(p.edits)):
		return fmt.Errorf("edits %q: want one of %v", p.edits, modes)
	case p.diff && !slices.Contains([]string{formatDiff, formatGit, formatQuilt}, p.format):
		return fmt.Errorf("format %q: want %s, %s or %s", p.format, formatDiff, formatGit, formatQuilt)
	case p.revert && (p.checkOnly || p.diff || p.output != ""):
		return errors.New("--revert changes a tree, it goes with no other flag but --json")
	case p.revert && p.tarball:
		return fmt.Errorf("%s is not a directory: --revert takes a tree that was edited", p.source)
	case p.checkOnly && (p.diff || p.output != ""):
		return errors.New("--check writes nothing: leave out --diff, --format and --output")
	case p.format == formatQuilt && p.output == "":
		return errors.New("--format quilt makes a directory: say where with --output, such as --output patches")
	case p.diff && p.json && p.output == "":
		return errors.New("the report and the patch can't both go to standard output: say where the patch goes with --output")
	case p.output != "" && !p.diff && !p.tarball:
		return fmt.Errorf("%s is a directory and is edited in place: --output is for tarballs and for patches (--diff)", p.source)
	case p.tarball && !p.checkOnly && !p.diff && p.output == "":
		return fmt.Errorf("%s is not a directory: say with --output where it is unpacked to and edited, or use --check or --diff", p.source)
	}
	return p.findFamilies()
}

// findFamilies finds the families of the GPUs that were named.
func (p *patcher) findFamilies() error {
	for _, name := range p.gpus {
		if slices.Contains(patch.Families(), patch.Family(name)) {
			p.families = append(p.families, patch.Family(name))
			continue
		}
		gpus, err := catalog.Load().LookupGPU(name)
		if err != nil {
			return fmt.Errorf("%w; a family is one of %v", err, patch.Families())
		}
		for _, g := range gpus {
			p.families = append(p.families, patch.Family(g.Family))
		}
	}
	slices.Sort(p.families)
	p.families = slices.Compact(p.families)
	return nil
}

func (p *patcher) run() error {
	switch {
	case p.revert:
		done, err := patch.Revert(p.source)
		if done == nil || err != nil && len(done.Edits) == 0 {
			return err
		}
		return errors.Join(p.reportRevert(done), err)
	case !p.tarball:
		return p.patch(p.source)
	case p.checkOnly || p.diff:
		temp, err := os.MkdirTemp("", "mkp2pimg-*")
		if err != nil {
			return err
		}
		tree, err := patch.Unpack(p.source, temp)
		if err == nil {
			err = p.patch(tree)
		}
		return errors.Join(err, os.RemoveAll(temp))
	}
	return patch.UnpackTo(p.source, p.output, p.patch)
}

// patch plans the edits of a tree and does with them what was asked.
func (p *patcher) patch(tree string) error {
	var edits []patch.Edit
	if p.headers != "" {
		headers, err := patch.Headers(p.headers)
		if err != nil {
			return err
		}
		edits = patch.Compat(headers)
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	r, err := patch.Plan(root.FS(), append(edits, patch.P2P(patch.Mode(p.edits), p.families...)...))
	err = errors.Join(err, root.Close())
	if r == nil {
		return err
	}
	fits := err == nil
	if fits {
		if err := p.write(r, tree); err != nil {
			return err // nothing became of the edits that there would be to report
		}
	}
	if p.diff && p.output == "" {
		return err
	}
	return errors.Join(err, p.report(r, fits))
}

// write brings the edits to the tree, or writes the patch that was asked for.
func (p *patcher) write(r *patch.Result, tree string) error {
	text := ""
	switch {
	case p.checkOnly:
		return nil
	case !p.diff:
		return r.WriteUndo(tree)
	case p.format == formatQuilt:
		return r.WriteQuilt(p.output)
	case p.format == formatGit:
		text = r.Mailbox()
	default:
		text = r.Diff()
	}
	if p.output == "" {
		_, err := io.WriteString(p.stdout, text)
		return err
	}
	if err := renameio.WriteFile(p.output, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the patch to %s: %w", p.output, err)
	}
	return nil
}
