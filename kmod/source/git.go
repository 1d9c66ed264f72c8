package source

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"

	"mkp2pimg/internal/tarpipe"
)

// commitName matches a whole commit hash, which any server of ours may be asked
// for; a branch or tag is looked up first.
var commitName = regexp.MustCompile(`^[0-9a-f]{40}$`)

func gitSource(where, ref string, remote bool) (*Source, error) {
	if ref == "" {
		return nil, fmt.Errorf("driver source %s: is a git repository: name a branch, tag or commit of it, as in %s#580.142", where, where)
	}
	base := path.Base(where)
	if remote {
		u, err := url.Parse(where)
		if err != nil {
			return nil, fmt.Errorf("driver source: %w", err)
		}
		base = path.Base(u.Path)
	}
	name := strings.TrimSuffix(base, ".git") + "@" + strings.ReplaceAll(ref, "/", "-") + ".tar"
	return &Source{Name: name, Remote: remote, Open: func(ctx context.Context) (io.ReadCloser, error) {
		open := local
		if remote {
			open = clone
		}
		commit, err := open(ctx, where, ref)
		if err != nil {
			return nil, fmt.Errorf("driver source %s: %s: %w", where, ref, err)
		}
		tree, err := commit.Tree()
		if err != nil {
			return nil, fmt.Errorf("driver source %s: commit %s: %w", where, commit.Hash, err)
		}
		return tarpipe.Read(func(w *tar.Writer) error { return packCommit(w, commit, tree) }), nil
	}}, nil
}

// local finds a commit in a repository on this machine.
func local(_ context.Context, where, ref string) (*object.Commit, error) {
	repo, err := git.PlainOpen(where)
	if errors.Is(err, git.ErrRepositoryNotExists) {
		if _, err := os.Stat(filepath.Join(where, versionFile)); err == nil {
			return nil, fmt.Errorf("a tree without a git repository has no commits: leave out %q", "#"+ref)
		}
		return nil, fmt.Errorf("there is neither %s nor a git repository", versionFile)
	}
	if err != nil {
		return nil, err
	}
	hash, err := repo.ResolveRevision(plumbing.Revision(ref))
	if err != nil {
		return nil, err
	}
	return repo.CommitObject(*hash)
}

// clone fetches one commit, without its history, into memory.
func clone(ctx context.Context, where, ref string) (*object.Commit, error) {
	repo, err := git.Init(memory.NewStorage(), nil)
	if err != nil {
		return nil, err
	}
	remote, err := repo.CreateRemote(&config.RemoteConfig{Name: "origin", URLs: []string{where}})
	if err != nil {
		return nil, err
	}
	refs := []string{ref}
	if !commitName.MatchString(ref) {
		refs = []string{"refs/tags/" + ref, "refs/heads/" + ref}
	}
	const got = plumbing.ReferenceName("refs/heads/got")
	var errs []error
	for _, name := range refs {
		err := remote.FetchContext(ctx, &git.FetchOptions{
			RefSpecs: []config.RefSpec{config.RefSpec(name + ":" + string(got))}, Depth: 1, Tags: git.NoTags,
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		hash, err := repo.ResolveRevision(plumbing.Revision(got))
		if err != nil {
			return nil, err
		}
		return repo.CommitObject(*hash)
	}
	return nil, errors.Join(errs...)
}

// packCommit writes the files of a commit, all of the commit's date.
func packCommit(w *tar.Writer, commit *object.Commit, tree *object.Tree) error {
	files := tree.Files()
	defer files.Close()
	return files.ForEach(func(f *object.File) error {
		r, err := f.Reader()
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		defer r.Close()
		if f.Mode == filemode.Symlink {
			target, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			return w.WriteHeader(tarpipe.Header(f.Name, tar.TypeSymlink, string(target), 0o777, 0, commit.Committer.When))
		}
		mode, err := f.Mode.ToOSFileMode()
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		return tarpipe.Add(w, tarpipe.Header(f.Name, tar.TypeReg, "", mode, f.Size, commit.Committer.When), r)
	})
}
