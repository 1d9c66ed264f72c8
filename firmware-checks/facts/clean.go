package facts

import (
	"reflect"
	"strings"
	"unicode"
)

// clean replaces control characters in all text of f: a document may come from
// anyone, and a terminal would obey them. Line ends and tabs stay.
func (f *Facts) clean() { cleanText(reflect.ValueOf(f).Elem()) }

func cleanText(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if s := printable(v.String()); s != v.String() && v.CanSet() {
			v.SetString(s)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			cleanText(v.Elem())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			cleanText(field)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // raw configuration space
		}
		for i := range v.Len() {
			cleanText(v.Index(i))
		}
	case reflect.Map:
		cleanMap(v)
	}
}

// cleanMap cleans the values of a map, which can only be replaced, and leaves out
// entries whose names are not clean.
func cleanMap(m reflect.Value) {
	for _, key := range m.MapKeys() {
		value := reflect.New(m.Type().Elem()).Elem()
		value.Set(m.MapIndex(key))
		cleanText(value)
		if key.Kind() == reflect.String && printable(key.String()) != key.String() {
			value = reflect.Value{} // deletes
		}
		m.SetMapIndex(key, value)
	}
}

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
