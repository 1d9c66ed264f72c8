package power

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"mkp2pimg/internal/farm/lab"
)

// command starts a machine with a program of the user. It is run as it is given,
// without a shell; what it has to know of the node is in its environment.
type command struct {
	argv []string
	node *lab.Node
}

func (c command) NetworkBoot(ctx context.Context) (string, error) {
	environment := append(os.Environ(),
		"MKP2PIMG_NODE="+c.node.Name, "MKP2PIMG_MAC="+c.node.MAC, "MKP2PIMG_UUID="+c.node.UUID,
		"MKP2PIMG_SERIAL="+c.node.Serial, "MKP2PIMG_GROUP="+c.node.Group,
	)
	stdout, stderr, err := execute(ctx, environment, c.argv...)
	if err == nil {
		return "", nil
	}
	e := &Error{Target: "node " + c.node.Name, Request: strings.Join(c.argv, " "), Err: err}
	if said := oneLine(stderr + "\n" + stdout); said != "" {
		e.Answer = fmt.Sprintf("%v: %s", err, said)
	}
	if missing(err) {
		e.Hint, e.Final = "install it, or give its path", true
	}
	return "", e
}

// killDelay is how long a program may take to end after it was told to, and its
// children to let go of its output.
const killDelay = 5 * time.Second

// execute runs a program and returns the end of what it wrote.
func execute(ctx context.Context, environment []string, argv ...string) (stdout, stderr string, err error) {
	var out, errs tail
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = environment, &out, &errs
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = killDelay
	err = cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // it ended well, and left something running
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return out.String(), errs.String(), err
}

// missing tells whether a program could not be run at all.
func missing(err error) bool {
	return errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// tail is the end of what was written to it.
type tail struct{ buf bytes.Buffer }

// tailSize is how much is kept, in bytes.
const tailSize = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.buf.Write(p)
	if over := t.buf.Len() - tailSize; over > 0 {
		t.buf.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string { return t.buf.String() }
