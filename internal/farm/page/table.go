package page

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// pageSize is how many rows a table has before it goes on on a next page.
const pageSize = 100

// columns are those that tables can be sorted by.
var columns = []string{defaultSort, "node", "worst", "changes", "seen"}

// filter is what a reader asked for in the query of the address.
type filter struct {
	Text    string // in name, group, reason, changes
	State   state
	Group   string
	Changed bool
	Sort    string
	Down    bool // from the last to the first
	Page    int  // from 1
}

// defaultSort puts first what a reader should look at.
const defaultSort = "attention"

// readFilter reads the query of an address; what it does not know is left out.
func readFilter(q url.Values) filter {
	f := filter{Text: q.Get("q"), State: state(q.Get("verdict")), Group: q.Get("group"), Changed: q.Get("changed") != ""}
	f.Sort, f.Down = strings.CutPrefix(q.Get("sort"), "-")
	if !slices.Contains(columns, f.Sort) {
		f.Sort = defaultSort
	}
	f.Page, _ = strconv.Atoi(q.Get("page")) // what is no number is the first page
	f.Page = max(f.Page, 1)
	return f
}

// Query is the address's query of f: what [readFilter] reads.
func (f filter) Query() string {
	q := url.Values{}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("q", f.Text)
	set("verdict", string(f.State))
	set("group", f.Group)
	if f.Changed {
		q.Set("changed", "1")
	}
	set("sort", f.SortQuery())
	if f.Page > 1 {
		q.Set("page", strconv.Itoa(f.Page))
	}
	if len(q) == 0 {
		return "?"
	}
	return "?" + q.Encode()
}

// By is the address that sorts by a column, or the other way round if it does.
func (f filter) By(column string) string {
	f.Down = f.Sort == column && !f.Down
	f.Sort, f.Page = column, 1
	return f.Query()
}

// Only is the address that shows nodes of one state only, or all if it does.
func (f filter) Only(s state) string {
	if f.State == s {
		s = ""
	}
	f.State, f.Page = s, 1
	return f.Query()
}

// OnlyChanged is the address that shows nodes only of which something changed, or
// all if it does.
func (f filter) OnlyChanged() string {
	f.Changed, f.Page = !f.Changed, 1
	return f.Query()
}

// At is the address of a page of the table.
func (f filter) At(page int) string {
	f.Page = page
	return f.Query()
}

// SortQuery is what the query says of the order, empty for the usual one.
func (f filter) SortQuery() string {
	switch {
	case f.Down:
		return "-" + f.Sort
	case f.Sort == defaultSort:
		return ""
	}
	return f.Sort
}

// column is the head of a column that sorts.
type column struct {
	Name, Text string
	Href       string // that sorts by it
	Order      string // value of aria-sort, empty for others than the sorted
	Number     bool
}

// Column is the head of a column of text, or of numbers.
func (f filter) Column(name, text string, number bool) column {
	c := column{Name: name, Text: text, Href: f.By(name), Number: number}
	if f.Sort == name {
		c.Order = "ascending"
		if f.Down {
			c.Order = "descending"
		}
	}
	return c
}

// words are what to look for, in lower case.
func (f filter) words() []string { return strings.Fields(strings.ToLower(f.Text)) }

// contains tells whether all words are in one of texts.
func contains(words []string, texts ...string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(strings.Join(texts, "\n"))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// tile is a number of nodes that leads to them.
type tile struct {
	Count  int
	State  state
	Text   string
	Href   string
	Chosen bool
}

// tilesOf are the tiles of what was counted, in the order of attention.
func tilesOf(f filter, count map[state]int, changed int) []tile {
	var all []tile
	for _, s := range states {
		if count[s] > 0 || f.State == s {
			all = append(all, tile{count[s], s, s.Words(), f.Only(s), f.State == s})
		}
	}
	return append(all, tile{changed, "", "changed", f.OnlyChanged(), f.Changed})
}

// groupsOf are the groups that rows have, in order.
func groupsOf[R any](rows []R, group func(R) string) []string {
	seen := map[string]bool{}
	for _, r := range rows {
		seen[group(r)] = true
	}
	delete(seen, "")
	return slices.Sorted(maps.Keys(seen))
}

// table is the part of rows that one page shows.
type table[R any] struct {
	Rows        []R
	Found       int // all that the filter keeps
	First, Last int // of those, on this page
	Pages       int
}

// tableOf sorts rows and takes the page that f asks for; a page behind the last
// is the last. Rows that are equal in order are sorted by name.
func tableOf[R any](f *filter, rows []R, order func(a, b R) int, name func(R) string) table[R] {
	slices.SortFunc(rows, func(a, b R) int {
		c := cmp.Or(order(a, b), natural(name(a), name(b)))
		if f.Down {
			return -c
		}
		return c
	})
	t := table[R]{Found: len(rows), Pages: max((len(rows)+pageSize-1)/pageSize, 1)}
	f.Page = min(f.Page, t.Pages)
	from := (f.Page - 1) * pageSize
	t.Rows = rows[from:min(from+pageSize, len(rows))]
	t.First, t.Last = from+1, from+len(t.Rows)
	return t
}

// orMore sorts nodes without a figure behind all others.
func orMore(v *float64) float64 {
	if v == nil {
		return 1e9
	}
	return *v
}

// natural compares names so that node-9 comes before node-10.
func natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		if m, n := digits(x), digits(y); m > 0 && n > 0 {
			v, w := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
			if c := cmp.Or(cmp.Compare(len(v), len(w)), cmp.Compare(v, w)); c != 0 {
				return c
			}
			x, y = x[m:], y[n:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits is how many digits a text begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
