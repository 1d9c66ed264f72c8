package loadopt

import (
	"fmt"
	"strings"
)

// parameters returns module parameters as the kernel's loader and modprobe.d take them. Values are
// quoted where both need it: the kernel removes the quotes, modprobe passes them on.
func parameters(options []Option) []string {
	var params, keys []string
	for _, o := range options {
		if o.Key {
			keys = append(keys, o.Name+"="+o.Value)
		} else {
			params = append(params, o.Name+"="+o.Value)
		}
	}
	if keys != nil {
		params = append(params, fmt.Sprintf("NVreg_RegistryDwords=%q", strings.Join(keys, ";")))
	}
	return params
}

// Arguments returns options as finit_module(2) takes them.
func Arguments(options []Option) string {
	return strings.Join(parameters(options), " ")
}

// Modprobe returns options as one line for a file in /etc/modprobe.d, or "" if there are none.
func Modprobe(options []Option) string {
	if len(options) == 0 {
		return ""
	}
	return "options nvidia " + Arguments(options) + "\n"
}

// Lines returns the lines of a file in /etc/modprobe.d: what each option is for, what was left out
// and why, and the options.
func (c Choice) Lines() []string {
	var lines []string
	for _, o := range c.Options {
		lines = append(lines, fmt.Sprintf("# %s: %s", o.Name, o.Why))
	}
	for _, o := range c.Left {
		lines = append(lines, fmt.Sprintf("# not %s=%s: %s", o.Name, o.Value, o.Why))
	}
	if line := strings.TrimSuffix(Modprobe(c.Options), "\n"); line != "" {
		lines = append(lines, line)
	}
	return lines
}
