package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"mkp2pimg/internal/farm/intake"
	farmjudge "mkp2pimg/internal/farm/judge"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
)

// judgement is how runs are judged.
var judgement = intake.Judge{Summarise: farmjudge.Summarise, Compare: farmjudge.Judge, Learn: farmjudge.Learn, Depth: farmjudge.Depth}

// storeOptions are the flags of commands that work on a store.
type storeOptions struct{ lab, store string }

func (o *storeOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.lab, "lab", "lab.yaml", "description of the lab, which names the store")
	f.StringVar(&o.store, "store", "", "the store, in place of lab.yaml's: a file, or postgres://USER@HOST/NAME; then lab.yaml may be missing")
}

// read returns the lab, nil if there is none and none is needed.
func (o *storeOptions) read(needed bool) (*lab.Lab, error) {
	l, err := lab.Load(o.lab)
	switch {
	case errors.Is(err, os.ErrNotExist) && !needed:
		return nil, nil
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: give it with --lab, or the store with --store", err)
	}
	return l, err
}

// open opens the store, which must be there unless it may be made.
func (o *storeOptions) open(ctx context.Context, create bool) (*store.Store, *lab.Lab, error) {
	l, err := o.read(o.store == "")
	if err != nil {
		return nil, nil, err
	}
	name := o.store
	if name == "" {
		name = l.Store
	}
	if !create && !strings.HasPrefix(name, "postgres") {
		if _, err := os.Stat(strings.TrimPrefix(name, "sqlite://")); err != nil {
			return nil, nil, fmt.Errorf("the store: %w", err)
		}
	}
	s, err := store.Open(ctx, name)
	return s, l, err
}
