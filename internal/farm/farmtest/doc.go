// Package farmtest is a lab on one machine: "mkp2pimg serve" and nodes that QEMU
// emulates, which start from its network, deliver and start from their disks, or
// break on the way: "make farm-test". It has tests only.
package farmtest
