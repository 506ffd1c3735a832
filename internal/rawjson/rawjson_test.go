package rawjson_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"raiderfleet/internal/rawjson"
)

func TestSet(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, obj, key, value, want string }{
		{"append to empty", `{}`, "a", `1`, `{"a":1}`},
		{"append keeps numbers and order", `{"z":1.50,"b":1e400 }`, "a", `"x"`, `{"z":1.50,"b":1e400 ,"a":"x"}`},
		{"replace in place", ` { "a" : 1 , "b" : 2 } `, "a", `[9]`, ` { "a" : [9] , "b" : 2 } `},
		{"key compared after unescaping", `{"\u0061":1}`, "a", `2`, `{"\u0061":2}`},
		{"all duplicates", `{"a":1,"b":2,"a":3}`, "a", `0`, `{"a":0,"b":2,"a":0}`},
		{"nested key is left alone", `{"n":{"a":1},"s":"}\"a\":1"}`, "a", `0`, `{"n":{"a":1},"s":"}\"a\":1","a":0}`},
		{"key that needs escapes", `{}`, `<"é`, `0`, `{"<\"é":0}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := rawjson.Set(json.RawMessage(tc.obj), tc.key, json.RawMessage(tc.value))
			if err != nil || string(got) != tc.want {
				t.Fatalf("got %s, %v; want %s", got, err, tc.want)
			}
		})
	}
	for _, bad := range []string{``, `[]`, `1`, `{"a":}`, `{"a":1,}`, `{"a":1}x`, `{`} {
		if _, err := rawjson.Set(json.RawMessage(bad), "a", json.RawMessage(`1`)); err == nil {
			t.Errorf("Set on %q: no error", bad)
		}
	}
	if _, err := rawjson.Set(json.RawMessage(`{}`), "a", json.RawMessage(`1 2`)); err == nil {
		t.Error("bad value: no error")
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ obj, key, want string }{
		{`{"a":1}`, "a", `{}`},
		{`{"a":1,"b":2.0}`, "a", `{"b":2.0}`},
		{`{"b":2,"a":1}`, "a", `{"b":2}`},
		{`{"a":1,"b":2,"\u0061":3,"c":4}`, "a", `{"b":2,"c":4}`},
		{`{ "b" : 2 }`, "a", `{ "b" : 2 }`},
	} {
		got, err := rawjson.Delete(json.RawMessage(tc.obj), tc.key)
		if err != nil || string(got) != tc.want {
			t.Errorf("Delete(%s): got %s, %v; want %s", tc.obj, got, err, tc.want)
		}
	}
}

func TestGetAndMembers(t *testing.T) {
	t.Parallel()
	obj := json.RawMessage(` {"a": 1 ,"\u0061":"\ud83d\ude00","b":null} `)
	if v, ok := rawjson.Get(obj, "a"); !ok || string(v) != `"\ud83d\ude00"` {
		t.Fatalf("last duplicate: %s %v", v, ok)
	}
	if v, ok := rawjson.Get(obj, "b"); !ok || string(v) != `null` {
		t.Fatalf("null: %s %v", v, ok)
	}
	if _, ok := rawjson.Get(obj, "c"); ok {
		t.Fatal("missing member found")
	}
	ms, err := rawjson.Members(obj)
	if err != nil || len(ms) != 3 || ms[1].Key != "a" || ms[2].Key != "b" {
		t.Fatalf("%v %v", ms, err)
	}
}

func TestDeepAndLarge(t *testing.T) {
	t.Parallel()
	const n = 15 << 20
	deep := append(append([]byte(`{"d":`), bytes.Repeat([]byte("["), n)...), bytes.Repeat([]byte("]"), n)...)
	deep = append(deep, '}')
	if !rawjson.IsObject(deep) {
		t.Fatal("deep object refused")
	}
	large := json.RawMessage(`{"s":"` + strings.Repeat("x", 31<<20) + `","n":1}`)
	got, err := rawjson.Set(large, "n", json.RawMessage(`2`))
	if err != nil || len(got) != len(large) {
		t.Fatalf("large: %d %v", len(got), err)
	}
}

func FuzzAgainstStandardLibrary(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1}`, `{"a":{"b":[1,2,{"c":null}]},"a":-0.5e+3}`, `{"a":01}`, `{"a":"\u12"}`, "{\"a\":\"\x01\"}",
		`[1,2`, `{"a":tru}`, ` true `, `"\/\b"`, `{"a":1,}`, `[}`, `-`, `1.`, `1e`, `{"\ud800":1}`, `[[[[]]],{}]`,
	} {
		f.Add([]byte(s), "a")
	}
	f.Fuzz(func(t *testing.T, data []byte, key string) {
		if bytes.Count(data, []byte("[")) > 9000 || bytes.Count(data, []byte("{")) > 9000 {
			return // the standard library gives up at a depth of 10,000
		}
		if got, want := rawjson.Valid(data), json.Valid(data); got != want {
			t.Fatalf("Valid(%q) = %v, standard library says %v", data, got, want)
		}
		var m map[string]json.RawMessage
		isObject := json.Unmarshal(data, &m) == nil && m != nil
		if got := rawjson.IsObject(data); got != isObject {
			t.Fatalf("IsObject(%q) = %v", data, got)
		}
		if !isObject || !utf8.Valid(data) { // the library replaces bad bytes in keys, we keep them
			return
		}
		for k, want := range m {
			if got, ok := rawjson.Get(data, k); !ok || !bytes.Equal(got, want) {
				t.Fatalf("Get(%q, %q) = %q, want %q", data, k, got, want)
			}
		}
		key = strings.ToValidUTF8(key, "\ufffd")
		set, err := rawjson.Set(data, key, json.RawMessage(`[7]`))
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := rawjson.Get(set, key); !ok || string(v) != `[7]` {
			t.Fatalf("after Set: %q", set)
		}
		del, err := rawjson.Delete(set, key)
		if err != nil || !json.Valid(del) {
			t.Fatalf("Delete gave %q, %v", del, err)
		}
		if _, ok := rawjson.Get(del, key); ok {
			t.Fatalf("still there: %q", del)
		}
	})
}

func BenchmarkSet(b *testing.B) {
	obj := json.RawMessage(`{"sessionId":"s","update":{"content":{"text":"` + strings.Repeat("word ", 4000) + `"}}}`)
	b.SetBytes(int64(len(obj)))
	for b.Loop() {
		if _, err := rawjson.Set(obj, "sessionId", json.RawMessage(`"t"`)); err != nil {
			b.Fatal(err)
		}
	}
}
