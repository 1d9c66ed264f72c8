package objdiff

import (
	"hash/maphash"
	"slices"
	"strings"
)

// pairs are the functions and data that both objects have, each way.
type pairs map[*symbol]*symbol

// pair finds for each symbol of stock its counterpart in patched: of the same name, from the
// same file if it is local. The compiler numbers names that are not unique in a file
// (__FUNCTION__.3, f.constprop.0), and any edit moves these numbers: such symbols are
// aligned by what they hold.
func pair(stock, patched *Object) pairs {
	type key struct {
		file, name      string
		local, function bool
	}
	group := func(o *Object) (keys []key, groups map[key][]*symbol) {
		groups = map[key][]*symbol{}
		for _, s := range o.symbols {
			k := key{s.file, unnumbered(s.name), s.local, s.function}
			if groups[k] == nil {
				keys = append(keys, k)
			}
			groups[k] = append(groups[k], s)
		}
		return keys, groups
	}
	keys, left := group(stock)
	_, right := group(patched)
	p := pairs{}
	seed := maphash.MakeSeed()
	for _, k := range keys {
		p.align(left[k], right[k], func(s *symbol) uint64 { return stock.digest(seed, s) },
			func(s *symbol) uint64 { return patched.digest(seed, s) })
	}
	return p
}

func (p pairs) join(a, b *symbol) { p[a], p[b] = b, a }

// align pairs a with b so that as many as possible hold the same, order kept, and then those
// left over between two such pairs, first with first.
func (p pairs) align(a, b []*symbol, digestA, digestB func(*symbol) uint64) {
	if len(a) == 1 && len(b) == 1 {
		p.join(a[0], b[0])
		return
	}
	rest := func(a, b []*symbol) {
		for i := range min(len(a), len(b)) {
			p.join(a[i], b[i])
		}
	}
	if len(a) == 0 || len(b) == 0 {
		return
	}
	if uint64(len(a))*uint64(len(b)) > maxAlign {
		rest(a, b)
		return
	}
	x, y := digests(a, digestA), digests(b, digestB)
	// common[i][j] is the length of the longest common subsequence of x[i:] and y[j:].
	common := make([][]int, len(x)+1)
	for i := range common {
		common[i] = make([]int, len(y)+1)
	}
	for i, left := range slices.Backward(x) {
		for j, right := range slices.Backward(y) {
			if left == right {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j, fromI, fromJ := 0, 0, 0, 0
	for i < len(x) && j < len(y) {
		switch {
		case x[i] == y[j]:
			rest(a[fromI:i], b[fromJ:j])
			p.join(a[i], b[j])
			i, j = i+1, j+1
			fromI, fromJ = i, j
		case common[i+1][j] >= common[i][j+1]:
			i++
		default:
			j++
		}
	}
	rest(a[fromI:], b[fromJ:])
}

// maxAlign bounds the memory that aligning takes. The driver's largest group is far smaller.
const maxAlign = 1 << 22

func digests(symbols []*symbol, digest func(*symbol) uint64) []uint64 {
	sums := make([]uint64, len(symbols))
	for i, s := range symbols {
		sums[i] = digest(s)
	}
	return sums
}

// digest sums up what sym holds, save where its relocations aim at in the object itself.
func (o *Object) digest(seed maphash.Seed, sym *symbol) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	var word [8]byte
	order.PutUint64(word[:], sym.end-sym.start)
	h.Write(word[:])
	h.Write(o.bytesOf(sym))
	for _, r := range o.relocsOf(sym) {
		order.PutUint64(word[:], r.offset-sym.start)
		h.Write(word[:])
		if t := o.resolve(sym, r); t.symbol == nil {
			h.WriteString(t.name)
		} else {
			h.WriteString(unnumbered(t.symbol.name))
		}
	}
	return h.Sum64()
}

// unnumbered returns name without the number at its end that the compiler gave it.
func unnumbered(name string) string {
	digits := strings.TrimRight(name, "0123456789")
	if base, ok := strings.CutSuffix(digits, "."); ok && base != "" && len(digits) < len(name) {
		return base + ".#"
	}
	return name
}

// base returns the name of the function of the source that the compiler made the named one of.
// GCC puts parts and copies of a function aside as f.cold, f.part.0, f.isra.0, f.constprop.0 and
// combinations of these.
func base(name string) string {
	for {
		cut := strings.TrimSuffix(unnumbered(name), ".#")
		for _, s := range []string{".cold", ".part", ".isra", ".constprop", ".localalias", ".lto_priv"} {
			if short, ok := strings.CutSuffix(cut, s); ok && short != "" {
				cut = short
			}
		}
		if cut == name {
			return name
		}
		name = cut
	}
}
