package runfile

import "encoding/binary"

// cksum is the checksum of the program cksum (POSIX.1-2017, "cksum"): a CRC
// whose bits come most significant first, with the length behind the data, and
// complemented. The other way round, as in hash/crc32, it would be that of zip.
type cksum struct {
	crc uint32
	n   uint64 // bytes so far
}

// cksumTable has the remainders of all first bytes.
var cksumTable = func() (table [256]uint32) {
	const polynomial = 0x04c11db7
	for i := range table {
		crc := uint32(i) << 24
		for range 8 {
			carry := crc >> 31
			crc = crc<<1 ^ carry*polynomial
		}
		table[i] = crc
	}
	return table
}()

func (c *cksum) Write(p []byte) (int, error) {
	crc := c.crc
	for _, b := range p {
		crc = crc<<8 ^ cksumTable[byte(crc>>24)^b]
	}
	c.crc = crc
	c.n += uint64(len(p))
	return len(p), nil
}

func (c *cksum) Sum(b []byte) []byte {
	crc := c.crc
	for n := c.n; n != 0; n >>= 8 {
		crc = crc<<8 ^ cksumTable[byte(crc>>24)^byte(n)]
	}
	return binary.BigEndian.AppendUint32(b, ^crc)
}

func (c *cksum) Reset()         { *c = cksum{} }
func (c *cksum) Size() int      { return 4 }
func (c *cksum) BlockSize() int { return 1 }
