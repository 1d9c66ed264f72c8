// Package mediatest boots the media of an image in QEMU, from nothing but their
// files: "make media-test". Disk images are booted in package disk.
package mediatest
