package objdiff

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInstructionRest(t *testing.T) {
	tests := []struct {
		name   string
		before []byte // up to the displacement
		want   uint64
	}{
		{"call", []byte{0xe8}, 4},
		{"call behind mov $5,%eax", []byte{0xb8, 5, 0, 0, 0, 0xe8}, 4},
		{"je", []byte{0x0f, 0x84}, 4},
		{"mov x(%rip),%eax", []byte{0x8b, 0x05}, 4},
		{"movzbl x(%rip),%eax", []byte{0x0f, 0xb6, 0x05}, 4},
		{"mov %rax,x(%rip)", []byte{0x48, 0x89, 0x05}, 4},
		{"cmpl $1,x(%rip)", []byte{0x83, 0x3d}, 5},
		{"cmpb $1,x(%rip)", []byte{0x80, 0x3d}, 5},
		{"cmpl $1000,x(%rip)", []byte{0x81, 0x3d}, 8},
		{"cmpw $1000,x(%rip)", []byte{0x66, 0x81, 0x3d}, 6},
		{"movb $1,x(%rip)", []byte{0xc6, 0x05}, 5},
		{"movl $1,x(%rip)", []byte{0xc7, 0x05}, 8},
		{"movl $1,x(%rip) behind and $15,%eax", []byte{0x83, 0xe0, 0x0f, 0xc7, 0x05}, 8},
		{"movq $1,x(%rip)", []byte{0x48, 0xc7, 0x05}, 8},
		{"movw $1,x(%rip)", []byte{0x66, 0xc7, 0x05}, 6},
		{"cmpxchg8b x(%rip)", []byte{0x0f, 0xc7, 0x0d}, 4},
		{"testb $1,x(%rip)", []byte{0xf6, 0x05}, 5},
		{"testl $1,x(%rip)", []byte{0xf7, 0x05}, 8},
		{"negl x(%rip)", []byte{0xf7, 0x1d}, 4},
		{"shll $3,x(%rip)", []byte{0xc1, 0x25}, 5},
		{"lock xadd %eax,x(%rip)", []byte{0xf0, 0x0f, 0xc1, 0x05}, 4},
		{"lock xadd %rax,x(%rip)", []byte{0xf0, 0x48, 0x0f, 0xc1, 0x05}, 4},
		{"btsl $3,x(%rip)", []byte{0x0f, 0xba, 0x2d}, 5},
		{"imul $100,x(%rip),%eax", []byte{0x6b, 0x05}, 5},
		{"imul $1000,x(%rip),%eax", []byte{0x69, 0x05}, 8},
		{"nothing", nil, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code := append(tt.before, 0, 0, 0, 0)
			assert.Equal(t, tt.want, instructionRest(code, uint64(len(tt.before))))
		})
	}
}

func TestContent(t *testing.T) {
	table := &symbol{name: "table", start: 16, end: 20}
	s := &section{
		data:    []byte("text\n\x00\x00\x00\x00\x01\x00\x00\xff\xff\x00\x00tablabc"),
		symbols: []*symbol{table}, aimedAt: []uint64{0, 8, 12, 20},
	}
	o := &Object{}
	assert.Equal(t, `"text\n"`, o.content(s, 0, 0))
	assert.Equal(t, "{0001}", o.content(s, 8, 0), "up to the next place known")
	assert.Equal(t, "{ffff}", o.content(s, 12, 0), "up to the next symbol")
	assert.Equal(t, "{616263}", o.content(s, 20, 0), "a text must end")
	assert.Contains(t, o.content(s, 30, 0), "nothing")
}
