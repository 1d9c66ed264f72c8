package pipeline

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"mkp2pimg/initramfs/userspace"
	"mkp2pimg/internal/fetch"
	"mkp2pimg/internal/lock"
	"mkp2pimg/kmod/catalog"
)

// userspaceURL is where NVIDIA publishes the .run archive of a release.
func userspaceURL(r *catalog.Release) string {
	return strings.ReplaceAll(catalog.Load().Upstream.Userspace, "{version}", r.Version)
}

// givenUserspace puts what o.Userspace names into the cache and describes it.
func (o *Options) givenUserspace(_ context.Context, release string) ([]lock.Input, error) {
	parts, err := userspace.Find(o.Userspace, release)
	if err != nil {
		return nil, &RequestError{"--userspace", err}
	}
	var list []lock.Input
	for _, p := range parts {
		r, err := p.Open()
		if err != nil {
			return nil, err
		}
		f, err := o.keep(p.File, r)
		if err != nil {
			return nil, fmt.Errorf("--userspace %s: %w", p.File, err)
		}
		in := lock.Input{Name: p.Name, Version: p.Version, Suite: lock.Local, Path: f.Name, SHA256: f.SHA256, Size: f.Size, Licence: nvidiaLicence}
		list = append(list, inRoles(in, p.Firmware, p.Libraries)...)
	}
	if !slices.ContainsFunc(list, func(in lock.Input) bool { return in.Role == lock.Firmware }) ||
		!slices.ContainsFunc(list, func(in lock.Input) bool { return in.Role == lock.Userspace }) {
		return nil, refuse("--userspace %s: want both the firmware of driver %s and its libraries", strings.Join(o.Userspace, " --userspace "), release)
	}
	return list, nil
}

// inRoles is one file in the roles that it has.
func inRoles(in lock.Input, firmware, libraries bool) []lock.Input {
	var list []lock.Input
	if firmware {
		in.Role = lock.Firmware
		list = append(list, in)
	}
	if libraries {
		in.Role = lock.Userspace
		list = append(list, in)
	}
	return list
}

// publishedSum is the line of sha256sum(1) that NVIDIA publishes beside an archive.
var publishedSum = regexp.MustCompile(`^([0-9a-f]{64}) [ *](\S+)\s*$`)

// maxSum is more than such a line has bytes.
const maxSum = 4096

// nvidiaUserspace finds the .run archive of a release with NVIDIA's checksum.
func (o *Options) nvidiaUserspace(ctx context.Context, r *catalog.Release) ([]lock.Input, lock.Archive, error) {
	base, path, _ := strings.Cut(userspaceURL(r), "/"+r.Version+"/")
	archive := lock.Archive{Suite: nvidiaSuite, Mirror: base}
	in := lock.Input{Name: userspace.RunName, Version: r.Version, Suite: archive.Suite, Path: r.Version + "/" + path, Licence: nvidiaLicence}
	if o.UserspaceMirror != "" {
		base = o.UserspaceMirror
	}
	url := base + "/" + in.Path
	text, err := o.fetcher().Document(ctx, url+".sha256sum", maxSum)
	if err != nil {
		return nil, archive, err
	}
	m := publishedSum.FindSubmatch(text)
	if m == nil || string(m[2]) != path {
		return nil, archive, fmt.Errorf("%s.sha256sum: want one line with the SHA-256 of %s, got %q", url, path, clip(text))
	}
	in.SHA256 = string(m[1])
	file, err := o.fetcher().Get(ctx, fetch.File{Name: path, URLs: []string{url}, SHA256: in.SHA256})
	if err != nil {
		return nil, archive, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, archive, err
	}
	in.Size = info.Size()
	return inRoles(in, true, true), archive, nil
}

func clip(text []byte) []byte { return text[:min(len(text), 80)] }
