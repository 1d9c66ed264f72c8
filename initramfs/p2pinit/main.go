// P2pinit runs the image on a machine: it loads what the hardware needs, gathers
// and judges the facts, loads the NVIDIA driver, measures, shows the verdict and
// delivers the report. u-root's init starts it as its uinit; kernel parameters
// named p2p.* steer it.
//
// The process that init starts never ends. It starts the run as a process of its
// own, and should that die, says so and does what was to come after the run.
//
// Usage:
//
//	p2pinit [--params] [--force]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/ending"
	"mkp2pimg/initramfs/p2pinit/node"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/watchdog"

	_ "golang.org/x/crypto/x509roots/fallback" // the image has no certificate files
)

func main() {
	if os.Getppid() == 1 {
		// What init's uroot.uinitargs may hold is not looked at: a mistake in it
		// must not end this process.
		keep()
	}
	f := flag.NewFlagSet("p2pinit", flag.ExitOnError)
	list := f.Bool("params", false, "list the kernel parameters and exit")
	force := f.Bool("force", false, "run although not started by the image's init; at the end this machine may be switched off")
	_ = f.Parse(os.Args[1:]) // exits on an error
	switch {
	case *list:
		for _, p := range params.Doc() {
			fmt.Printf("%s=%s\n    %s\n    Default: %s.\n", p.Name, p.Values, p.Text, p.Default)
		}
	case *force:
		run()
	default:
		fmt.Fprintln(os.Stderr, "p2pinit: not started by the image's init (see --force)")
		os.Exit(1)
	}
}

var end = ending.Ending{Root: "/", System: ending.Linux{}}

// keep starts the run and outlives it.
func keep() {
	deaf()
	cmd := exec.CommandContext(context.Background(), layout.P2PInit, "--force")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	next := after()
	end.Say("the run died (%v); its report may not be complete. Next: p2p.after=%s", err, next)
	if err := watchdog.Release(watchdog.Path); err != nil {
		end.Say("%v; it may reset the machine", err)
	}
	end.Do(context.Background(), next)
}

// run is the run and what comes after it. It does not return: a stage past its
// deadline may hang in the kernel, and a process with such a thread can't end.
func run() {
	deaf()
	n := &node.Node{Root: "/", System: node.Linux{}, Started: time.Now()}
	n.Run(context.Background())
	end.Do(context.Background(), after())
}

// deaf makes the process survive Ctrl-C and Ctrl-\ at the console, the hang-up of
// it, and writing to it afterwards. The signals are caught rather than ignored
// because a shell's programs would inherit the latter. That they are also keeps
// the runtime from taking an endless wait for a deadlock.
func deaf() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGPIPE)
}

// after is what the kernel's command line says is to come after the run.
func after() params.After {
	cmdline, _ := os.ReadFile("/proc/cmdline") // without it the defaults hold
	p, _ := params.Parse(string(cmdline))
	return p.Next()
}
