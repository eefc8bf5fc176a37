package statuspage

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"image"
	"image/color"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/explain"
)

var (
	drawing   = regexp.MustCompile(`viewBox="0 0 (\d+) \d+".*<path d="([^"]*)"`)
	rectangle = regexp.MustCompile(`M(\d+) (\d+)h(\d+)v1h-(\d+)z`)
	textOf    = regexp.MustCompile(`(?s)<pre>(.*)</pre>`)
)

// receiptOf is the page that a browser gets.
func receiptOf(t *testing.T, o *objects) (code int, body string) {
	t.Helper()
	o.ids = map[string]string{metav1.NamespaceSystem: "3b1f0c9e-5f0e-4a39-9b55-2f0a6c9d1e77"}
	for i := range o.updates {
		o.updates[i].UID = types.UID("7c2d8f7e-0d5b-4c55-8d0c-9b6f3f3b9a" + strconv.Itoa(10+i))
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "http://localhost/receipt", nil)
	serverOf(o).Handler().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// scan reads the drawing of a page as a phone does: another library decodes its squares.
func scan(t *testing.T, page string) string {
	t.Helper()
	m := drawing.FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no code in\n%s", page)
	}
	const scale = 3
	size, _ := strconv.Atoi(m[1])
	picture := image.NewGray(image.Rect(0, 0, size*scale, size*scale))
	for i := range picture.Pix {
		picture.Pix[i] = 255
	}
	left := rectangle.ReplaceAllStringFunc(m[2], func(one string) string {
		r := rectangle.FindStringSubmatch(one)
		x, _ := strconv.Atoi(r[1])
		y, _ := strconv.Atoi(r[2])
		n, _ := strconv.Atoi(r[3])
		for py := y * scale; py < (y+1)*scale; py++ {
			for px := x * scale; px < (x+n)*scale; px++ {
				picture.SetGray(px, py, color.Gray{})
			}
		}
		return ""
	})
	if left != "" {
		t.Fatalf("the drawing has more than rectangles: %.80s", left)
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(picture)
	if err != nil {
		t.Fatal(err)
	}
	text, err := qrcode.NewQRCodeReader().Decode(bitmap, map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true, gozxing.DecodeHintType_CHARACTER_SET: "UTF-8"})
	if err != nil {
		t.Fatalf("the code cannot be read: %v", err)
	}
	return text.GetText()
}

// What a phone reads of the page is what `refit receipts` reads in the office.
func TestReceiptPage(t *testing.T) {
	for name, phase := range map[string]string{"3-updating": v1alpha1.PhaseUpdating, "4-halted": v1alpha1.PhaseHalted, "5-done": v1alpha1.PhaseDone} {
		o := moments()[name]
		if name != "5-done" {
			o.updates[0].Status.Blockers = []v1alpha1.Blocker{{Reason: "NodeFailed", Message: "Zürich <b> & 東京"}}
		}
		code, page := receiptOf(t, o)
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", name, code, page)
		}
		read := scan(t, page)
		if shown := html.UnescapeString(textOf.FindStringSubmatch(page)[1]); read != shown {
			t.Errorf("%s: the code has %q, the page %q", name, read, shown)
		}
		file, err := explain.ParseReceipt([]byte(read))
		if err != nil || file.Receipt.Phase != phase || file.Receipt.Update != "to-1.36.3" || file.Receipt.Nodes.Total != 4 || file.Envelope != nil {
			t.Errorf("%s: %v %+v", name, err, file.Receipt)
		}
		if unfinished := strings.Contains(page, "is not finished"); unfinished != (name == "3-updating") {
			t.Errorf("%s: says that it is not finished: %v", name, unfinished)
		}
		if name == "5-done" {
			compare(t, "5-done-receipt.html", []byte(page))
		}
	}
}

// Without an update there is no receipt, and a long one is text alone. An API server that gives no
// name of the cluster gives no receipt.
func TestReceiptPageWithoutACode(t *testing.T) {
	if code, page := receiptOf(t, plant(1)); code != http.StatusOK || !strings.Contains(page, "There is no update yet") || strings.Contains(page, "<svg") {
		t.Errorf("%d %s", code, page)
	}
	long := plant(60)
	long.approved(1000, 9)
	st := long.updating(v1alpha1.PhaseHalted, 0)
	st.NodesFailed = 60
	for i := range long.nus {
		long.nus[i].Name += strings.Repeat("-of-rack", 5)
		long.nodes[i].Name = long.nus[i].Name
		st.Blockers = append(st.Blockers, v1alpha1.Blocker{Object: "Node/" + long.nus[i].Name, Reason: v1alpha1.ReasonStepFailed, Message: strings.Repeat("long ", 100)})
		long.nodes[i].Status.NodeInfo.KubeletVersion = fmt.Sprintf("v1.35.%d+%s", i, strings.Repeat("x", 60))
	}
	if code, page := receiptOf(t, long); code != http.StatusOK || strings.Contains(page, "<svg") || !strings.Contains(page, fmt.Sprintf("a code has at most %d", maxCode)) || !strings.Contains(page, "\nfailed worker-1-of-rack-of-rack-of-rack-of-rack-of-rack StepFailed") {
		t.Errorf("%d %.3000s", code, page)
	}
	broken := moments()["5-done"]
	broken.err = errors.New("unavailable")
	if code, page := receiptOf(t, broken); code != http.StatusServiceUnavailable || strings.Contains(page, "<") {
		t.Errorf("%d %s", code, page)
	}
}

// The largest text fits the largest code, and no longer one.
func TestLargestCode(t *testing.T) {
	for n, fits := range map[int]bool{maxCode: true, maxCode + 1: false} {
		r := explain.Receipt{Update: "u"}
		file, err := explain.NewReceiptFile(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Message = strings.Repeat("m", n-len(file.Text())-len("message \n"))
		p, err := newReceiptPage(r)
		if err != nil || p.Bytes != n || (p.Code != nil) != fits {
			t.Errorf("%d bytes: %v, %d in the text, a code: %v", n, err, p.Bytes, p.Code != nil)
			continue
		}
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, "receipt.html", p); err != nil {
			t.Fatal(err)
		}
		if fits && scan(t, b.String()) != p.Text {
			t.Error("the largest code has another text")
		}
		if b.Len() > 120_000 {
			t.Errorf("%d bytes: the page has %d", n, b.Len())
		}
	}
}
