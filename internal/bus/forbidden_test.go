package bus_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// forbiddenNames are what no code of ours may call or name, each with its reason. The
// names are unusual enough to be looked for without types.
func forbiddenNames() map[string]string {
	const (
		direct = "turns direct reads on, also on a bucket that exists; declare a stream instead"
		ack    = "batons are deleted by sequence, never acknowledged: the answer comes before the baton is gone"
		purge  = "moves the ack floor past other lanes' batons, which are then never redelivered"
		stale  = "is answered by any replica, and may be stale"
	)
	return map[string]string{
		"CreateKeyValue": direct, "CreateOrUpdateKeyValue": direct, "UpdateKeyValue": direct,
		"CreateObjectStore": direct, "CreateOrUpdateObjectStore": direct, "UpdateObjectStore": direct,
		"Ack": ack, "DoubleAck": ack, "AckSync": ack, "Nak": ack, "NakWithDelay": ack, "Term": ack, "TermWithReason": ack,
		"Purge": purge, "PurgeStream": purge, "PurgeDeletes": purge,
		"MsgRollup": purge, "MsgRollupSubject": purge, "MsgRollupAll": purge,
		"GetMsg": stale, "GetLastMsgForSubject": stale,
	}
}

// forbiddenTexts are the same written out by hand.
func forbiddenTexts() map[string]string {
	return map[string]string{
		"Nats-Rollup": "rollup", "+ACK": "ack", "-NAK": "nak", "+TERM": "term", "+NXT": "ack",
		"STREAM.PURGE": "purge", "DIRECT.GET": "direct read",
	}
}

// excused are the two places that may, and why.
func excused(path, what string) bool {
	switch filepath.ToSlash(path) {
	case "internal/bus/cut.go": // refuses READY
		return what == "STREAM.PURGE"
	case "internal/bus/payloads.go": // an object's description, as the object store writes it
		return what == "MsgRollup" || what == "MsgRollupSubject"
	}
	return false
}

// forbidden lists what a source file has that it may not have. path counts from the
// module's root.
func forbidden(fset *token.FileSet, file *ast.File, path string) []string {
	var found []string
	report := func(at token.Pos, what, why string) {
		if excused(path, what) {
			return
		}
		found = append(found, fmt.Sprintf("%s: %s: %s", fset.Position(at), what, why))
	}
	names, texts := forbiddenNames(), forbiddenTexts()
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if why, bad := names[n.Sel.Name]; bad {
				report(n.Sel.Pos(), n.Sel.Name, why)
			}
		case *ast.KeyValueExpr:
			key, isName := n.Key.(*ast.Ident)
			value, isBool := n.Value.(*ast.Ident)
			if isName && isBool && key.Name == "AllowDirect" && value.Name != "false" {
				report(n.Pos(), "AllowDirect", "a direct read may be stale")
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				field, ok := left.(*ast.SelectorExpr)
				if !ok || field.Sel.Name != "AllowDirect" || i >= len(n.Rhs) {
					continue
				}
				if value, ok := n.Rhs[i].(*ast.Ident); !ok || value.Name != "false" {
					report(n.Pos(), "AllowDirect", "a direct read may be stale")
				}
			}
		case *ast.BasicLit:
			for text, why := range texts {
				if n.Kind == token.STRING && strings.Contains(n.Value, text) {
					report(n.Pos(), text, why)
				}
			}
		}
		return true
	})
	return found
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above this test")
		}
		dir = up
	}
}

func TestForbiddenCalls(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	files := 0
	root := moduleRoot(t)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name == "testdata" || name == "vendor" || (strings.HasPrefix(name, ".") && len(name) > 1) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
		if err != nil {
			return nil //nolint:nilerr // the compiler tells it better
		}
		files++
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, f := range forbidden(fset, file, rel) {
			t.Error(f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Errorf("only %d files were looked at", files)
	}
}

// The check itself: every form of a forbidden call is found, and nothing else.
func TestForbiddenCallsAreFound(t *testing.T) {
	t.Parallel()
	check := func(body string) []string {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "sample.go", "package p\nfunc f() {\n"+body+"\n}", parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		return forbidden(fset, file, "x.go")
	}
	bad := []string{
		"js.CreateKeyValue(ctx, c)", "js.UpdateKeyValue(ctx, c)", "_ = m.Ack()", "go m.Nak()", "defer m.DoubleAck(ctx)",
		"g := m.Ack; g()", "s.Purge(ctx)", `h.Set("Nats-Rollup", "sub")`, "h.Set(nats.MsgRollup, x)",
		"c := C{AllowDirect: true}", "c.AllowDirect = true", "c.AllowDirect = x.y", "s.GetMsg(ctx, 1)", "m.Respond([]byte(`-NAK`))",
	}
	for _, body := range bad {
		if len(check(body)) == 0 {
			t.Errorf("not found: %s", body)
		}
	}
	for _, body := range []string{
		"m.InProgress()", "c := C{AllowDirect: false}", "c.AllowDirect = false", "if a.AllowDirect != b.AllowDirect {}",
		"c.AckWait = x", "c.AllowRollup = true", "js.KeyValue(ctx, b)", "// m.Ack()",
	} {
		if got := check(body); len(got) != 0 {
			t.Errorf("%s: %v", body, got)
		}
	}
	if !slices.ContainsFunc(check("m.Ack()"), func(s string) bool { return strings.HasPrefix(s, "sample.go:3:") }) {
		t.Error("the report does not say where")
	}
}
