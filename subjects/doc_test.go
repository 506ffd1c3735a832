package subjects

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func readDoc(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "subjects.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sources parses the package's own files, without tests.
func sources(t *testing.T) []*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// undocumented lists what the code has and the text has not.
func undocumented(files []*ast.File, text string) []string {
	var missing []string
	want := func(word string) {
		if !strings.Contains(text, "`"+word+"`") {
			missing = append(missing, word)
		}
	}
	isKey := regexp.MustCompile(`(Key|Filter)$`)
	for _, file := range files {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if !d.Name.IsExported() {
					continue
				}
				onFleet := false
				if d.Recv != nil {
					name, ok := d.Recv.List[0].Type.(*ast.Ident)
					onFleet = ok && name.Name == "Fleet"
				}
				if onFleet || d.Recv == nil && isKey.MatchString(d.Name.Name) || d.Name.Name == "ReadyConsumer" {
					want(d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					value, ok := spec.(*ast.ValueSpec)
					if !ok || d.Tok != token.CONST {
						continue
					}
					for i, name := range value.Names {
						if !name.IsExported() || i >= len(value.Values) {
							continue
						}
						literal, ok := value.Values[i].(*ast.BasicLit)
						if !ok || literal.Kind != token.STRING {
							continue
						}
						word, _ := strconv.Unquote(literal.Value) // the parser took it
						want(word)
						if strings.HasPrefix(name.Name, "Header") || strings.HasSuffix(name.Name, "Key") && name.Name != "ConfigVersionKey" {
							want(name.Name)
						}
					}
				}
			}
		}
	}
	return missing
}

func TestDocNamesEverything(t *testing.T) {
	t.Parallel()
	text := readDoc(t)
	for _, word := range undocumented(sources(t), text) {
		t.Errorf("docs/subjects.md does not mention `%s`", word)
	}
	words := sampleTokens()
	words.session, words.attachment = "sxyz", "axyz"
	for _, x := range trios(words) {
		if x.name == "Client" {
			x.subject = words.fleet.Client("fd-abc", words.attachment)
			x.filters = []string{words.fleet.ClientFrontDoor("fd-abc")}
		}
		for _, s := range append(x.filters, x.subject) {
			if !strings.Contains(text, "`"+s+"`") {
				t.Errorf("docs/subjects.md has no example `%s` of %s", s, x.name)
			}
		}
	}
	layout := testLayout("default", 1)
	for _, c := range layout.Streams() {
		if !strings.Contains(text, "`"+c.Name+"`") {
			t.Errorf("docs/subjects.md does not mention stream `%s`", c.Name)
		}
	}
	consumer := layout.ReadyConsumer("bjorn", AnyClass, 0)
	for _, s := range []string{consumer.Name, strconv.Itoa(MaxAckPending)} {
		if !strings.Contains(text, s) {
			t.Errorf("docs/subjects.md does not mention %s of the consumer", s)
		}
	}
}

func TestDocCheckBites(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package subjects
const HeaderNew = "Rf-New"
const KindNew PromptKind = "new kind"
func (f Fleet) Newest() string { return "" }
func NewestKey() string { return "" }
func unseen() {}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := undocumented([]*ast.File{file}, ""); len(got) != 5 {
		t.Errorf("missing: %q", got)
	}
}

// bodies are the message bodies that the text must show, each under its name.
func bodies() map[string]any {
	return map[string]any{
		"Own": Own{}, "WorkerRequest": WorkerRequest{}, "WorkerReply": WorkerReply{}, "ControlRequest": ControlRequest{},
		"ControlReply": ControlReply{}, "AttachedReply": AttachedReply{}, "RunRecord": RunRecord{}, "Outcome": Outcome{},
		"CancelMark": CancelMark{}, "SessionMeta": SessionMeta{}, "SessionAgent": SessionAgent{}, "Node": Node{},
		"UserMessage": UserMessage{}, "AskBody": AskBody{}, "AskDone": AskDone{}, "Note": Note{}, "FleetEvent": FleetEvent{},
		"TranscriptEntry": TranscriptEntry{}, "SettingsBody": SettingsBody{},
	}
}

// parts are structs that stand only inside of others, or are headers and settings.
func parts() map[string]bool {
	return map[string]bool{
		"Owner": true, "LaneStatus": true, "Agent": true, "RunError": true, "Origin": true,
		"PromptHeader": true, "ClientHeader": true, "EventHeader": true, "Layout": true, "Settings": true, "Wish": true,
	}
}

// Every body has examples that decode strictly and together show all of its fields.
func TestDocExamples(t *testing.T) {
	t.Parallel()
	fence := regexp.MustCompile("(?s)```json (\\w+)\n(.*?)```")
	seen := map[string]map[string]bool{}
	for _, m := range fence.FindAllStringSubmatch(readDoc(t), -1) {
		name, text := m[1], m[2]
		zero, ok := bodies()[name]
		if !ok {
			t.Errorf("example of an unknown body %s", name)
			continue
		}
		d := json.NewDecoder(bytes.NewBufferString(text))
		d.DisallowUnknownFields()
		if err := d.Decode(reflect.New(reflect.TypeOf(zero)).Interface()); err != nil {
			t.Errorf("example of %s: %v\n%s", name, err, text)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			t.Errorf("example of %s: %v", name, err)
		}
		if seen[name] == nil {
			seen[name] = map[string]bool{}
		}
		for field := range fields {
			seen[name][field] = true
		}
	}
	for name, zero := range bodies() {
		body := reflect.TypeOf(zero)
		for f := range body.Fields() {
			field, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !seen[name][field] {
				t.Errorf("no example of %s has %q", name, field)
			}
		}
	}
	for _, file := range sources(t) {
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				s, ok := spec.(*ast.TypeSpec)
				if !ok || !s.Name.IsExported() {
					continue
				}
				if _, isStruct := s.Type.(*ast.StructType); isStruct && bodies()[s.Name.Name] == nil && !parts()[s.Name.Name] {
					t.Errorf("%s is a new struct: add it to the document and to this test", s.Name.Name)
				}
			}
		}
	}
}
