// Package nvml reads the clocks, the temperature and the PCIe replay counter of
// GPUs through NVIDIA's libnvidia-ml.so.1, without cgo. A program that links it
// needs the dynamic loader of glibc, as the library does.
package nvml

import (
	"fmt"
	"reflect"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// Soname is the name that every release of the library answers to.
const Soname = "libnvidia-ml.so.1"

// Types and values of nvml.h.
type (
	result int32   // nvmlReturn_t
	device uintptr // nvmlDevice_t
)

const (
	clockSM        = 1 // NVML_CLOCK_SM
	clockMemory    = 2 // NVML_CLOCK_MEM
	temperatureGPU = 0 // NVML_TEMPERATURE_GPU
)

// api holds the functions used; the tag is the exported symbol.
type api struct {
	ErrorString   func(result) *byte                     `sym:"nvmlErrorString"`
	Init          func() result                          `sym:"nvmlInit_v2"`
	Shutdown      func() result                          `sym:"nvmlShutdown"`
	DeviceByBusID func(id *byte, d *device) result       `sym:"nvmlDeviceGetHandleByPciBusId_v2"`
	Clock         func(device, int32, *uint32) result    `sym:"nvmlDeviceGetClockInfo"`
	Temperature   func(device, int32, *uint32) result    `sym:"nvmlDeviceGetTemperature"`
	Replays       func(d device, counter *uint32) result `sym:"nvmlDeviceGetPcieReplayCounter"`
}

// A Library is libnvidia-ml, loaded and initialised.
type Library struct{ api api }

// Open loads the library by name, or [Soname] if that is empty, and initialises
// it.
func Open(name string) (*Library, error) {
	if name == "" {
		name = Soname
	}
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	l := new(Library)
	v := reflect.ValueOf(&l.api).Elem()
	for i := range v.NumField() {
		addr, err := purego.Dlsym(handle, v.Type().Field(i).Tag.Get("sym"))
		if err != nil {
			return nil, fmt.Errorf("%s is no NVML: %w", name, err)
		}
		purego.RegisterFunc(v.Field(i).Addr().Interface(), addr)
	}
	if err := l.check("nvmlInit_v2", l.api.Init()); err != nil {
		return nil, err
	}
	return l, nil
}

// Close ends the use of the library.
func (l *Library) Close() error { return l.check("nvmlShutdown", l.api.Shutdown()) }

// check turns the result of call into an error.
func (l *Library) check(call string, r result) error {
	if r == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s (%d)", call, unix.BytePtrToString(l.api.ErrorString(r)), r)
}

// A Device is a GPU.
type Device struct {
	lib    *Library
	handle device
}

// Device returns the GPU at the PCI address bdf.
func (l *Library) Device(bdf string) (*Device, error) {
	id, err := unix.BytePtrFromString(bdf)
	if err != nil {
		return nil, fmt.Errorf("PCI address %q: %w", bdf, err)
	}
	d := &Device{lib: l}
	if err := l.check("nvmlDeviceGetHandleByPciBusId_v2", l.api.DeviceByBusID(id, &d.handle)); err != nil {
		return nil, fmt.Errorf("GPU %s: %w", bdf, err)
	}
	return d, nil
}

// SMClock returns the clock of the streaming multiprocessors in MHz, as it is
// now.
func (d *Device) SMClock() (int, error) {
	return d.number("nvmlDeviceGetClockInfo", func(v *uint32) result { return d.lib.api.Clock(d.handle, clockSM, v) })
}

// MemoryClock returns the clock of the memory in MHz, as it is now.
func (d *Device) MemoryClock() (int, error) {
	return d.number("nvmlDeviceGetClockInfo", func(v *uint32) result { return d.lib.api.Clock(d.handle, clockMemory, v) })
}

// Temperature returns that of the GPU's die in degrees Celsius.
func (d *Device) Temperature() (int, error) {
	return d.number("nvmlDeviceGetTemperature", func(v *uint32) result { return d.lib.api.Temperature(d.handle, temperatureGPU, v) })
}

// Replays returns how many packets PCIe has had to send again.
func (d *Device) Replays() (int, error) {
	return d.number("nvmlDeviceGetPcieReplayCounter", func(v *uint32) result { return d.lib.api.Replays(d.handle, v) })
}

func (d *Device) number(call string, get func(*uint32) result) (int, error) {
	var v uint32
	err := d.lib.check(call, get(&v))
	return int(v), err
}
