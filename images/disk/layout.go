// Package disk makes a disk image that boots x86-64 machines by UEFI and by
// legacy BIOS, with a second partition that takes the reports, and reads such
// images and the sticks they were written to.
//
// Partition table and file systems are made with go-diskfs v1.9.4. Where that
// falls short, the remedy is here, each in one place:
//
//   - For some sizes its FAT is two entries too short, and below 65525 clusters it
//     makes what firmware takes for FAT16: [soundFAT] chooses other sizes.
//   - The entry ".." of a directory in the root must name cluster 0 and names 2,
//     the count of free clusters is missing, times are of the clock and the serial
//     number is zero or of the clock: tidy sets them.
//   - It writes a file cluster by cluster, and both FATs with each call: copyFile
//     lets it allocate the whole file at once and copies the bytes past it.
//   - Its reader trusts what it reads: volume reads instead.
package disk

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/google/uuid"

	"mkp2pimg/initramfs/layout"
)

const (
	sector = 512 // bytes; devices with other logical sectors are not served
	mib    = 1 << 20

	bootName   = "P2PBOOT" // of the boot partition, and the label of its file system
	reportName = layout.ReportPartition

	// reportSize is that of the partition for reports before flash grows it: a
	// report takes less than 1 MiB, but less than 33 MiB is no FAT32.
	reportSize = 34 * mib
	// maxReportSize is the most that the partition grows to: go-diskfs keeps the
	// sectors of a FAT in 16 bits, which with its clusters of 32 KiB are 256 GiB.
	maxReportSize = 255 << 30
)

// region is a part of a disk, in bytes.
type region struct{ start, size int64 }

func (r region) end() int64 { return r.start + r.size }

// partitions is where on a disk of some size the two partitions are. Both begin
// and end on a mebibyte.
type partitions struct {
	disk         int64
	boot, report region
}

// plan lays an image out whose boot partition holds at least payload bytes. If cd,
// the data of its file system begin at a sector of a CD.
func plan(payload int64, cd bool) partitions {
	boot := region{mib, soundFAT(payload)}
	for cd && (fatReserved+2*fatSize(boot.size))*sector%CDSector != 0 {
		boot.size = soundFAT(boot.size + mib)
	}
	report := region{boot.end(), soundFAT(reportSize)}
	return partitions{report.end() + mib, boot, report} // the last MiB is for the table's backup
}

// grown is p on a disk of another size, of which the report partition takes what
// the boot partition leaves. ok is false if the disk is too small.
func (p partitions) grown(disk int64) (grown partitions, ok bool) {
	size := min(disk/mib*mib-mib-p.report.start, maxReportSize)
	for size >= reportSize && !isSound(size) {
		size -= mib
	}
	return partitions{disk, p.boot, region{p.report.start, size}}, size >= reportSize
}

// soundFAT is the smallest number of mebibytes, in bytes, that is at least size
// and of which go-diskfs makes a sound FAT32 file system.
func soundFAT(size int64) int64 {
	size = (size + mib - 1) / mib * mib
	for !isSound(size) {
		size += mib
	}
	return size
}

// fatReserved is the number of sectors before the first FAT that go-diskfs leaves.
const fatReserved = 32

// isSound follows the arithmetic of go-diskfs (fat32.Create): its length of a FAT
// leaves the two entries out that belong to no cluster, so for some sizes the
// last clusters have none. With fewer than 65525 clusters a file system is FAT16
// to whoever counts them (FAT specification 1.03, "FAT Type Determination").
func isSound(size int64) bool {
	perFAT := fatSize(size)
	clusters := (size/sector - fatReserved - 2*perFAT) / (clusterSize(size) / sector)
	return clusters >= 65525 && clusters+2 <= perFAT*sector/4
}

// fatSize is the number of sectors of each of the two FATs.
func fatSize(size int64) int64 {
	denominator := clusterSize(size) + 8
	return (4*(size/sector-fatReserved) + denominator - 1) / denominator
}

// clusterSize is that of go-diskfs for a file system of size bytes.
func clusterSize(size int64) int64 {
	switch {
	case size <= 260*mib:
		return 512
	case size <= 8<<30:
		return 4 << 10
	case size <= 16<<30:
		return 8 << 10
	case size <= 32<<30:
		return 16 << 10
	}
	return 32 << 10
}

// identity gives the numbers that make a disk's parts unique. They follow from
// the image's manifest: the same image has the same, another has others.
type identity [sha256.Size]byte

func (id identity) guid(name string) string {
	return uuid.NewSHA1(uuid.UUID(id[:16]), []byte(name)).String()
}

// serial is the serial number of a file system.
func (id identity) serial(name string) uint32 {
	sum := sha256.Sum256(append(id[:], name...))
	return binary.LittleEndian.Uint32(sum[:])
}

// legacyBoot is the attribute by which gptmbr.bin finds the partition to boot
// (UEFI specification 2.10, table 5.8: bit 2).
const legacyBoot = 1 << 2

// table is the partition table.
func (p partitions) table(disk, boot, report string) *gpt.Table {
	entry := func(index int, r region, kind gpt.Type, name, guid string, attributes uint64) *gpt.Partition {
		return &gpt.Partition{
			Index: index, Start: uint64(r.start / sector), End: uint64(r.end()/sector - 1), Size: uint64(r.size),
			Type: kind, Name: name, GUID: guid, Attributes: attributes,
		}
	}
	return &gpt.Table{
		LogicalSectorSize: sector, PhysicalSectorSize: sector, ProtectiveMBR: true, GUID: disk,
		Partitions: []*gpt.Partition{
			entry(1, p.boot, gpt.EFISystemPartition, bootName, boot, legacyBoot),
			entry(2, p.report, gpt.MicrosoftBasicData, reportName, report, 0),
		},
	}
}
