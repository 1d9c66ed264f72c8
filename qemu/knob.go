package qemu

import (
	"fmt"
	"slices"
	"strings"
)

// A Knob is a setting of a machine: of its firmware, its boards or its kernel.
type Knob struct {
	Name    string      `yaml:"name" json:"name"`
	Summary string      `yaml:"summary" json:"summary"`
	Values  []KnobValue `yaml:"values" json:"values"`
}

// KnobValue is what a knob can be turned to. One without a change is what the
// machine is described with.
type KnobValue struct {
	Value  string `yaml:"value" json:"value"`
	Change Change `yaml:"change,omitempty" json:"change,omitzero"`
	// Expect takes the place of what the machine expects, as long as no other knob
	// is turned.
	Expect *Expect `yaml:"expect,omitempty" json:"expect,omitempty"`
}

// Change is what turning a knob changes in the description of a machine. What is
// empty stays as it is.
type Change struct {
	Firmware Firmware `yaml:"firmware,omitempty" json:"firmware,omitempty"`
	IOMMU    IOMMU    `yaml:"iommu,omitempty" json:"iommu,omitempty"`
	Above4G  *Size    `yaml:"above4g,omitempty" json:"above4g,omitempty"`
	// Cmdline is added to the kernel's command line.
	Cmdline []string `yaml:"cmdline,omitempty" json:"cmdline,omitempty"`
	// Devices are changes of devices, by id or, for all of a kind, by kind.
	Devices map[string]DeviceChange `yaml:"devices,omitempty" json:"devices,omitempty"`
}

// DeviceChange is a change of a [Device]. What is empty stays as it is.
type DeviceChange struct {
	Window Size `yaml:"window,omitempty" json:"window,omitempty"`
	Speed  int  `yaml:"speed,omitempty" json:"speed,omitempty"`
	Width  int  `yaml:"width,omitempty" json:"width,omitempty"`
	Board  `yaml:",inline"`
}

// Set turns a knob, given as "knob=value". What the machine expects is then what
// the knob's value says; nothing in particular once a second knob is turned, since
// descriptions say what one does.
func (m *Machine) Set(setting string) error {
	name, value, ok := strings.Cut(setting, "=")
	if !ok {
		return fmt.Errorf("%q is not a setting: want knob=value", setting)
	}
	i := slices.IndexFunc(m.Knobs, func(k Knob) bool { return k.Name == name })
	if i < 0 {
		return fmt.Errorf("machine %s has no knob %q: it has %s", m.Name, name, orNone(settings(m.Knobs)))
	}
	knob := &m.Knobs[i]
	k := slices.IndexFunc(knob.Values, func(v KnobValue) bool { return v.Value == value })
	if k < 0 {
		return fmt.Errorf("knob %s of machine %s can't be %q: it can be %s", name, m.Name, value, strings.Join(values(*knob), ", "))
	}
	if slices.ContainsFunc(m.Settings, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
		return fmt.Errorf("knob %s is set twice", name)
	}
	if v := knob.Values[k]; !v.described() {
		m.turn(name, v)
	}
	return nil
}

// turn turns a knob to a value.
func (m *Machine) turn(knob string, v KnobValue) {
	m.apply(v.Change)
	switch {
	case len(m.Settings) > 0:
		m.Expect = Expect{Verdicts: m.Expect.Verdicts}
	case v.Expect != nil:
		m.Expect = *v.Expect
	}
	m.Settings = append(m.Settings, knob+"="+v.Value)
}

// described says whether the value is the one that the machine is described with.
func (v KnobValue) described() bool { return v.Change.empty() }

func (c Change) empty() bool {
	return c.Firmware == "" && c.IOMMU == "" && c.Above4G == nil && len(c.Cmdline) == 0 && len(c.Devices) == 0
}

// apply makes a change.
func (m *Machine) apply(c Change) {
	if c.Firmware != "" {
		m.Firmware = c.Firmware
	}
	if c.IOMMU != "" {
		m.IOMMU = c.IOMMU
	}
	if c.Above4G != nil {
		m.Above4G = c.Above4G
	}
	m.Cmdline = append(slices.Clone(m.Cmdline), c.Cmdline...)
	walk(m.PCIe, func(d *Device) {
		// What is said of the device itself has the last word.
		for _, name := range []string{string(d.Kind), d.ID} {
			if change, ok := c.Devices[name]; ok {
				d.apply(change)
			}
		}
	})
}

func (d *Device) apply(c DeviceChange) {
	set(&d.Window, c.Window)
	set(&d.Speed, c.Speed)
	set(&d.Width, c.Width)
	set(&d.Model, c.Model)
	set(&d.BAR, c.BAR)
	set(&d.Largest, c.Largest)
	set(&d.Fixed, c.Fixed)
}

// set changes a value unless the new one is zero.
func set[T comparable](to *T, value T) {
	if value != *new(T) {
		*to = value
	}
}

// clone returns a copy of m that can be changed by knobs.
func (m *Machine) clone() *Machine {
	c := *m
	c.PCIe = cloneTree(m.PCIe)
	return &c
}

func cloneTree(devices []Device) []Device {
	out := slices.Clone(devices)
	for i := range out {
		out[i].Below = cloneTree(out[i].Below)
	}
	return out
}

// values lists what a knob can be turned to.
func values(k Knob) []string {
	var all []string
	for _, v := range k.Values {
		all = append(all, v.Value)
	}
	return all
}

// String gives the knob with its values: "acs=off|on".
func (k Knob) String() string { return k.Name + "=" + strings.Join(values(k), "|") }

// settings lists knobs with their values.
func settings(knobs []Knob) []string {
	var all []string
	for _, k := range knobs {
		all = append(all, k.String())
	}
	return all
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// Variants returns the machine as it is described, and once for each value of
// each knob that changes it.
func (m *Machine) Variants() []*Machine {
	all := []*Machine{m.clone()}
	for _, k := range m.Knobs {
		for _, v := range k.Values {
			if v.described() {
				continue
			}
			c := m.clone()
			c.turn(k.Name, v)
			all = append(all, c)
		}
	}
	return all
}

// Title is the machine's name with its settings: "epyc-4x4090,rebar=off".
func (m *Machine) Title() string { return strings.Join(append([]string{m.Name}, m.Settings...), ",") }
