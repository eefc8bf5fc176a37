package explain

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

var receiptDay = time.Date(2026, 11, 26, 11, 20, 0, 0, time.UTC)

func receiptKey(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func publicOf(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// haltedFacts are those of a site with three nodes, one of which failed.
func haltedFacts() ReceiptFacts {
	return ReceiptFacts{Now: receiptDay, Cluster: "0f3c6a1e-1111-2222-3333-444455556666", Site: "north", Contact: []string{"Ann, +1 555 0100"}, Refit: "v0.1.0",
		Update: Update{Name: "to-1.36.3", Phase: "Halted", PlanDigest: "sha256:" + strings.Repeat("c", 64), Done: 1, Total: 3, Failed: 1, StartedAt: receiptDay.Add(-time.Hour), Away: 4, Longest: 3,
			Blockers: []Blocker{{Reason: "StepFailed", Message: "node w1: step kubelet failed: exit status 1\nlast line"}}},
		UpdateUID: "aaaa-1", Bundle: ReceiptBundle{Digest: "sha256:" + strings.Repeat("b", 64), Name: "demo", Version: "1.36.3"}, From: []string{"v1.35.4", "v1.35.4", "v1.35.4"}, To: "v1.36.3",
		Kubelets: []string{"v1.36.3", "v1.35.4", "v1.35.4"}, Failed: []FailedNode{{"w1", "StepFailed", "kubelet"}}}
}

func fileOf(t testing.TB, r Receipt, key ed25519.PrivateKey) ReceiptFile {
	t.Helper()
	f, err := NewReceiptFile(r, key)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// drawText draws texts of every kind, also hostile and very long ones.
func drawText(t *rapid.T, label string) string {
	return rapid.OneOf(rapid.StringMatching(`[a-z0-9.-]{0,20}`), rapid.String(), rapid.StringOfN(rapid.SampledFrom([]rune("\"\\<& \u00a0\u2028\x1bé世")), 0, 600, -1)).Draw(t, label)
}

func drawFacts(t *rapid.T) ReceiptFacts {
	texts := func(label string, most int) (out []string) {
		for range rapid.IntRange(0, most).Draw(t, label) {
			out = append(out, drawText(t, label))
		}
		return out
	}
	at := func(label string) time.Time {
		return time.Unix(rapid.Int64Range(-1e12, 1e12).Draw(t, label), 5).In(time.FixedZone("x", 3600))
	}
	f := ReceiptFacts{Now: time.Unix(rapid.Int64Range(1, 2e9).Draw(t, "now"), 0), Cluster: drawText(t, "cluster"), Site: drawText(t, "site"), Contact: texts("contact", 5), Refit: drawText(t, "refit"), UpdateUID: drawText(t, "uid"),
		Bundle: ReceiptBundle{drawText(t, "digest"), drawText(t, "bundle"), drawText(t, "version")}, From: texts("from", 30), To: drawText(t, "to"), Kubelets: texts("kubelets", 30)}
	f.Update = Update{Name: "u" + drawText(t, "update"), Phase: rapid.SampledFrom([]string{"Done", "Halted", "Updating", "Blocked", ""}).Draw(t, "phase"), PlanDigest: drawText(t, "plan"), Paused: rapid.Bool().Draw(t, "paused"),
		Done: rapid.IntRange(-1, 9).Draw(t, "done"), Total: rapid.IntRange(-1, 9).Draw(t, "total"), Failed: rapid.IntRange(-1, 9).Draw(t, "failed"), StartedAt: at("started"), FinishedAt: at("finished"), Away: rapid.Int64Range(-1, 1e6).Draw(t, "away")}
	for range rapid.IntRange(0, 2).Draw(t, "blockers") {
		f.Update.Blockers = append(f.Update.Blockers, Blocker{Reason: drawText(t, "reason"), Message: drawText(t, "message")})
	}
	for range rapid.IntRange(0, 60).Draw(t, "failed") {
		f.Failed = append(f.Failed, FailedNode{drawText(t, "node"), drawText(t, "reason"), drawText(t, "step")})
	}
	return f
}

// For any facts, the receipt fits its file, and is read as it was written, in each of its forms.
func TestAReceiptIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := NewReceipt(drawFacts(t))
		for _, key := range []ed25519.PrivateKey{nil, receiptKey(1)} {
			f, err := NewReceiptFile(r, key)
			if err != nil {
				t.Fatal(err)
			}
			for _, data := range [][]byte{f.JSON(), []byte(f.Text()), []byte("\ufeff" + strings.ReplaceAll(f.Text(), "\n", "\r\n"))} {
				got, err := ParseReceipt(data)
				if err != nil {
					t.Fatalf("%v\n%s", err, data)
				}
				if !reflect.DeepEqual(got.Receipt, r) || got.Digest != f.Digest {
					t.Fatalf("%s\n%s", cmp.Diff(r, got.Receipt), data)
				}
				if len(data) > maxReceipt || !IsReceipt(data) {
					t.Fatalf("%d bytes, recognized: %t", len(data), IsReceipt(data))
				}
				if key != nil && len(got.Envelope.SignedBy(map[string]ed25519.PublicKey{"k": publicOf(key)})) != 1 {
					t.Fatalf("the signature is not valid any more:\n%s", data)
				}
			}
		}
	})
}

// A receipt of 30,000 nodes that all failed, with the longest names and texts, fits its file. It
// counts all nodes.
func TestAReceiptOfALargeClusterIsSmall(t *testing.T) {
	t.Parallel()
	f := haltedFacts()
	long := strings.Repeat(`"\`, 400)
	f.Site, f.Contact, f.Update.Name, f.Bundle = long, []string{long, long, long}, long, ReceiptBundle{long, long, long}
	f.Refit, f.UpdateUID, f.Cluster, f.To, f.Update.PlanDigest = long, long, long, long, long
	f.Update.Blockers = []Blocker{{Reason: long, Message: long}}
	f.Kubelets, f.From, f.Failed, f.Update.Total, f.Update.Failed = nil, nil, nil, 30_001, 30_000
	for i := range 30_000 {
		f.Failed = append(f.Failed, FailedNode{fmt.Sprintf("%05d%s", i, long), fmt.Sprintf("%02d%s", i%20, long), long})
		f.Kubelets, f.From = append(f.Kubelets, fmt.Sprintf("v1.%d.%s", i%20, long)), append(f.From, fmt.Sprintf("v0.%d.%s", i%20, long))
	}
	r := NewReceipt(f)
	file := fileOf(t, r, receiptKey(1))
	for _, data := range [][]byte{file.JSON(), []byte(file.Text()), fileOf(t, r, nil).JSON()} {
		if len(data) > maxReceipt {
			t.Errorf("%d bytes", len(data))
		}
		if _, err := ParseReceipt(data); err != nil {
			t.Error(err)
		}
	}
	nodes, failed := 0, 0
	for _, v := range r.Versions {
		nodes += v.Nodes
	}
	for _, c := range r.Failures {
		failed += c.Nodes
	}
	if nodes != 30_000 || failed != 30_000 || r.Versions[maxCounts-1].Version != Others {
		t.Errorf("%d nodes, %d failed: %v", nodes, failed, r.Versions)
	}
	// Of ordinary names all fit.
	f = haltedFacts()
	for i := range 100 {
		f.Failed = append(f.Failed, FailedNode{fmt.Sprintf("ip-10-0-0-%03d.eu-central-1.compute.internal", i), "StepFailed", "control-plane"})
	}
	if r := NewReceipt(f); len(r.FailedNodes) != maxFailedNodes || r.Failures[0] != (ReasonCount{"StepFailed", 101}) {
		t.Errorf("%d nodes are listed, %v", len(r.FailedNodes), r.Failures)
	}
}

// Every single changed, missing or additional byte of a signed receipt is refused, in both forms.
func TestAChangedReceiptIsRefused(t *testing.T) {
	t.Parallel()
	key := receiptKey(1)
	keys := map[string]ed25519.PublicKey{"north": publicOf(key)}
	file := fileOf(t, NewReceipt(haltedFacts()), key)
	random := rand.New(rand.NewPCG(1, 2))
	for form, whole := range map[string][]byte{"JSON": file.JSON(), "text": []byte(file.Text())} {
		if c := CheckReceipt("f", whole, keys); c.State != ReceiptCounted {
			t.Fatalf("%s: %+v", form, c)
		}
		for i := range whole {
			changed, gone := bytes.Clone(whole), slices.Delete(bytes.Clone(whole), i, i+1)
			changed[i] ^= byte(1 + random.IntN(255))
			more := slices.Insert(bytes.Clone(whole), i, byte(random.IntN(256)))
			for how, data := range map[string][]byte{"changed": changed, "gone": gone, "inserted": more} {
				// Spaces around the lines of a text, and the case of its check, mean nothing.
				if c := CheckReceipt("f", data, keys); c.State == ReceiptCounted && (form == "JSON" || c.Digest != file.Digest) {
					t.Fatalf("%s: byte %d %s: counted\n%q", form, i, how, data)
				}
			}
		}
	}
}

// What keeps a receipt from counting has its own state and a reason.
func TestReceiptsThatDoNotCount(t *testing.T) {
	t.Parallel()
	north, other := receiptKey(1), receiptKey(2)
	keys := map[string]ed25519.PublicKey{"north": publicOf(north)}
	r := NewReceipt(haltedFacts())
	changed := r
	changed.Phase = "Done"
	stolen := fileOf(t, r, north)
	stolen.Envelope.Payload = encodeReceipt(changed, "")
	asBundle, err := bundle.SignPayload(north, bundle.PayloadType, encodeReceipt(r, ""))
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*Receipt)) []byte {
		c := r
		change(&c)
		return fileOf(t, c, north).JSON()
	}
	for name, tc := range map[string]struct {
		data           []byte
		state, message string
	}{
		"signed by another key":             {fileOf(t, r, other).JSON(), ReceiptUnknownKey, "no key of --pub"},
		"not signed":                        {fileOf(t, r, nil).JSON(), ReceiptUnsigned, "not signed"},
		"a text that is not signed":         {[]byte(fileOf(t, r, nil).Text()), ReceiptUnsigned, "not signed"},
		"another payload in the envelope":   {stolen.JSON(), ReceiptWrongSignature, "key north"},
		"signed as a bundle":                {encodeJSON(asBundle, ""), ReceiptDamaged, "not as a receipt"},
		"an envelope with indentation":      {encodeJSON(stolen.Envelope, " "), ReceiptDamaged, "a byte was changed"},
		"another version":                   {with(func(r *Receipt) { r.APIVersion = "refit.dev/receipt/v9" }), ReceiptDamaged, "refit.dev/receipt/v9"},
		"no cluster":                        {with(func(r *Receipt) { r.Cluster = "" }), ReceiptDamaged, "does not name"},
		"numbers that do not add up":        {with(func(r *Receipt) { r.Nodes.Done++ }), ReceiptDamaged, "add up"},
		"fewer nodes than none":             {with(func(r *Receipt) { r.Nodes = ReceiptNodes{Total: -1, Done: -1} }), ReceiptDamaged, "not a number"},
		"too many nodes":                    {with(func(r *Receipt) { r.Versions = []VersionCount{{"v1", 1 << 40}} }), ReceiptDamaged, "not a number"},
		"a control character":               {with(func(r *Receipt) { r.Site = "a\x1b[2J" }), ReceiptDamaged, "not one line"},
		"two words":                         {with(func(r *Receipt) { r.Reason = "a b" }), ReceiptDamaged, "not one word"},
		"a long list":                       {with(func(r *Receipt) { r.FailedNodes = make([]FailedNode, 51) }), ReceiptDamaged, "longer"},
		"parts of a second":                 {with(func(r *Receipt) { r.StartedAt = r.StartedAt.Add(1) }), ReceiptDamaged, "whole seconds"},
		"a file that is too large":          {append(fileOf(t, r, nil).JSON(), bytes.Repeat([]byte(" "), MaxReceiptFile)...), ReceiptDamaged, "are allowed"},
		"a torn file":                       {file512(fileOf(t, r, north).JSON()), ReceiptDamaged, "no JSON"},
		"a torn text":                       {[]byte(fileOf(t, r, north).Text()[:strings.Index(fileOf(t, r, north).Text(), "failure")]), ReceiptDamaged, `"check"`},
		"a text cut within a line":          {[]byte(fileOf(t, r, north).Text()[:512]), ReceiptDamaged, "does not know"},
		"a text with other numbers":         {[]byte(receiptTextMark + "\nnodes 1: 1 done, 0 failed, 0 waiting, 7 more\n"), ReceiptDamaged, "not as refit writes it"},
		"a text with a line of a later one": {[]byte(receiptTextMark + "\nnew-field 7\n"), ReceiptDamaged, "does not know"},
		"deeply nested JSON":                {[]byte(`{"payloadType":` + strings.Repeat("[", 60_000)), ReceiptDamaged, ""},
	} {
		c := CheckReceipt("f", tc.data, keys)
		if c.State != tc.state || !strings.Contains(c.Message, tc.message) || c.Message == "" {
			t.Errorf("%s: %s: %s", name, c.State, c.Message)
		}
	}
	// Without keys a signature is not verified, and a later version may have more fields.
	later := bytes.Replace(fileOf(t, r, nil).JSON(), []byte("{\n"), []byte("{\n \"later\": {\"a\": [1]},\n"), 1)
	for name, data := range map[string][]byte{"by another key": fileOf(t, r, other).JSON(), "not signed": fileOf(t, r, nil).JSON(), "with a field of a later version": later} {
		if c := CheckReceipt("f", data, nil); c.State != ReceiptCounted || !reflect.DeepEqual(c.Receipt, r) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func file512(b []byte) []byte { return b[:512] }

// sampleReceipts are receipts of n sites; every seventh halted, every fifth has an older receipt
// too.
func sampleReceipts(n int) (out []Receipt) {
	for i := range n {
		f := haltedFacts()
		f.Cluster, f.Site = fmt.Sprintf("%08d-cluster", i), fmt.Sprintf("site-%03d", i)
		if i%7 != 0 {
			f.Update.Phase, f.Update.Done, f.Update.Failed, f.Update.Blockers, f.Failed = "Done", 3, 0, nil, nil
			f.Kubelets = []string{"v1.36.3", "v1.36.3", "v1.36.3"}
		}
		out = append(out, NewReceipt(f))
		if i%5 == 0 {
			f.Update.Phase, f.Now = "Updating", f.Now.Add(-time.Minute)
			out = append(out, NewReceipt(f))
		}
	}
	return out
}

func countedOf(t testing.TB, all []Receipt) (out []CheckedReceipt) {
	t.Helper()
	for i, r := range all {
		out = append(out, CheckReceipt(fmt.Sprintf("f%04d", i), fileOf(t, r, nil).JSON(), nil))
	}
	return out
}

// 500 sites add up to what they have. Copies, old receipts and the order of the files change
// nothing but their own numbers.
func TestAddReceipts(t *testing.T) {
	t.Parallel()
	all := countedOf(t, sampleReceipts(500))
	got := AddReceipts(receiptDay, all, false)
	// 72 of 500 halted, each with one node at the new version and two at the old one.
	want := Receipts{NeedPerson: 72, Older: 100, Versions: []FleetVersion{{"v1.36.3", 500, 428*3 + 72}, {"v1.35.4", 72, 144}}, Reasons: []FleetReason{{"StepFailed", 72, 72}}}
	if len(got.Sites) != 500 || got.NeedPerson != want.NeedPerson || got.Older != want.Older || got.Copies != 0 || !reflect.DeepEqual(got.Versions, want.Versions) || !reflect.DeepEqual(got.Reasons, want.Reasons) {
		t.Errorf("%d sites, %d need a person, %d older: %v %v", len(got.Sites), got.NeedPerson, got.Older, got.Versions, got.Reasons)
	}
	for i, s := range got.Sites {
		if s.NeedsPerson != (i < 72) || s.NeedsPerson != (s.Receipt.Phase == "Halted") {
			t.Fatalf("site %d: %+v", i, s)
		}
	}
	again := append(slices.Clone(all), all...)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
	twice := AddReceipts(receiptDay, again, false)
	if twice.Copies != 600 || !reflect.DeepEqual(twice.Versions, got.Versions) || twice.Older != got.Older || len(twice.Sites) != 500 {
		t.Errorf("with copies: %d copies, %d older, %d sites", twice.Copies, twice.Older, len(twice.Sites))
	}
}

// A site's newest update counts, and of each update the newest receipt: neither an old file that
// arrives again nor one about an old update hides the state.
func TestReplayedReceipts(t *testing.T) {
	t.Parallel()
	receipt := func(uid, phase string, started, written time.Duration) Receipt {
		f := haltedFacts()
		f.Update.Name, f.UpdateUID, f.Update.Phase, f.Now = "u-"+uid, uid, phase, receiptDay.Add(written)
		if f.Update.StartedAt = receiptDay.Add(started); started == 0 {
			f.Update.StartedAt = time.Time{}
		}
		return NewReceipt(f)
	}
	old := receipt("1", "Done", -48*time.Hour, -40*time.Hour)
	oldAgain := receipt("1", "Done", -48*time.Hour, 2*time.Hour)
	waiting := receipt("2", "Ready", 0, -time.Minute) // the clock of that computer was early
	moving := receipt("2", "Updating", -2*time.Hour, -90*time.Minute)
	halted := receipt("2", "Halted", -2*time.Hour, 0)
	future := receipt("3", "Done", time.Hour, 30*time.Hour)
	for name, tc := range map[string]struct {
		all     []Receipt
		phase   string
		warning bool
	}{
		"the newest of one update":            {[]Receipt{halted, moving, waiting}, "Halted", false},
		"an old update that is written again": {[]Receipt{oldAgain, halted, moving, old}, "Halted", false},
		"a clock in the future":               {[]Receipt{future, halted}, "Done", true},
	} {
		for range 2 {
			slices.Reverse(tc.all)
			got := AddReceipts(receiptDay, countedOf(t, tc.all), false)
			if len(got.Sites) != 1 || got.Sites[0].Receipt.Phase != tc.phase || got.Older != len(tc.all)-1 || (got.Sites[0].Warning != "") != tc.warning {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

// A paused or waiting update needs a person; one that moves does not.
func TestWhoNeedsAPerson(t *testing.T) {
	t.Parallel()
	for phase, want := range map[string]bool{"Done": false, "Updating": false, "Preparing": false, "Planning": false, "Halted": true, "Blocked": true, "Ready": true} {
		if r := (Receipt{Phase: phase}); r.needsPerson() != want {
			t.Errorf("%s: %t", phase, !want)
		}
	}
	if r := (Receipt{Phase: "Updating", Paused: true}); !r.needsPerson() {
		t.Error("a paused update goes on by itself")
	}
}

// For any file: no crash; a receipt that was read is written and read again as the same.
func FuzzParseReceipt(f *testing.F) {
	file, err := NewReceiptFile(NewReceipt(haltedFacts()), receiptKey(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file.JSON())
	f.Add([]byte(file.Text()))
	f.Add(encodeReceipt(file.Receipt, " "))
	f.Add([]byte(`{"apiVersion":"refit.dev/receipt/v1","kind":"Receipt","cluster":"c","createdAt":"2026-11-26T11:20:00Z","update":"u","updateUID":"1","phase":"Done","refit":"v","contact":[""]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ParseReceipt(data)
		if err != nil {
			return
		}
		got.Receipt.Finished = isFinished(got.Receipt.Phase) // the text does not have it
		again, err := NewReceiptFile(got.Receipt, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range [][]byte{again.JSON(), []byte(again.Text())} {
			back, err := ParseReceipt(form)
			if err != nil || !bytes.Equal(encodeReceipt(back.Receipt, ""), encodeReceipt(got.Receipt, "")) || back.Digest != again.Digest {
				t.Fatalf("%v: %q is read as %s", err, form, encodeReceipt(back.Receipt, ""))
			}
		}
		c := CheckReceipt("f", data, map[string]ed25519.PublicKey{"k": publicOf(receiptKey(1))})
		if c.State == ReceiptCounted && c.Digest != file.Digest {
			t.Fatalf("counted without a signature: %q", data)
		}
		if !json.Valid(encodeJSON(AddReceipts(receiptDay, []CheckedReceipt{c}, true), "")) {
			t.Fatal("the summary is no JSON")
		}
	})
}

func BenchmarkAddReceipts(b *testing.B) {
	key := receiptKey(1)
	keys := map[string]ed25519.PublicKey{"k": publicOf(key)}
	var files [][]byte
	for _, r := range sampleReceipts(500) {
		files = append(files, fileOf(b, r, key).JSON())
	}
	for b.Loop() {
		var all []CheckedReceipt
		for _, data := range files {
			all = append(all, CheckReceipt("f", data, keys))
		}
		if got := AddReceipts(receiptDay, all, true); len(got.Sites) != 500 || got.Older != 100 {
			b.Fatalf("%d sites", len(got.Sites))
		}
	}
}
