// Package rm asks NVIDIA's resource manager (RM), the core of nvidia.ko, over
// which path it lets GPUs reach each other.
//
// CUDA and NVML say that two GPUs can reach each other; only the RM says how:
// over C2C, NVLink, PCIe through BAR1, or PCIe through the mailbox. The package
// speaks the ioctl interface of /dev/nvidiactl directly; it asks questions and
// changes nothing. The layouts of what it passes hold for releases 535 to 610,
// which a test proves against their headers. Two of them grew within that span:
// the driver refuses a wrong size, so the older layout is tried then.
//
// Names in capitals are those of the headers in open-gpu-kernel-modules:
// src/common/sdk/nvidia/inc (nvos.h, ctrl/, class/, nvstatuscodes.h) and, for
// the system layer, nv-ioctl.h and nv-ioctl-numbers.h.
package rm
