package statuspage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"rsc.io/qr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/controller/plans"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/model"
)

// maxCode is the number of bytes of the largest code with the lowest correction.
const maxCode = 2953

// quietZone is the white margin that a reader needs around a code, in squares.
const quietZone = 4

// receiptPage is the receipt of an update, as a code that a phone reads and as text.
type receiptPage struct {
	Update, Phase, Tone, Text string
	Finished                  bool
	Bytes, Most               int
	// Code is nil if the text is too long for one.
	Code *receiptCode
}

// receiptCode is a code as an SVG path of its black squares.
type receiptCode struct {
	Size int
	Path string
}

// receiptCache has the page of the last request for a second: many browsers cost as much as one.
type receiptCache struct {
	mu   sync.Mutex
	at   time.Time
	page *receiptPage
}

// writeReceipt shows the receipt of the newest update that is done or halted, else of the current one.
func (s *Server) writeReceipt(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, kindHTML, func(ctx context.Context, b io.Writer) error {
		p, err := s.receipt(ctx)
		if err != nil {
			return err
		}
		return templates.ExecuteTemplate(b, "receipt.html", p)
	})
}

func (s *Server) receipt(ctx context.Context) (*receiptPage, error) {
	s.receipts.mu.Lock()
	defer s.receipts.mu.Unlock()
	now := s.options.Now()
	if age := now.Sub(s.receipts.at); s.receipts.page != nil && age >= 0 && age < snapshotMaxAge {
		return s.receipts.page, nil
	}
	p, err := s.readReceipt(ctx, now)
	if err != nil {
		return nil, err
	}
	s.receipts.at, s.receipts.page = now, p
	return p, nil
}

// readReceipt makes the same receipt as `refit receipt --text` without a key.
func (s *Server) readReceipt(ctx context.Context, now time.Time) (*receiptPage, error) {
	var updates v1alpha1.ClusterUpdateList
	var nodes corev1.NodeList
	var nus v1alpha1.NodeUpdateList
	var bundles v1alpha1.BundleList
	for _, l := range []client.ObjectList{&updates, &nodes, &nus, &bundles} {
		if err := s.reader.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list %T: %w", l, err)
		}
	}
	u := rolloutfacts.ChooseReceiptUpdate(updates.Items)
	if u == nil {
		return &receiptPage{}, nil
	}
	plan, err := s.receiptPlan(ctx, u)
	if err != nil {
		return nil, err
	}
	// Not from the cache: a cache would watch all namespaces for one uid.
	var cluster corev1.Namespace
	if err := s.direct.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &cluster); err != nil {
		return nil, fmt.Errorf("read namespace %s, whose uid names the cluster: %w", metav1.NamespaceSystem, err)
	}
	facts := rolloutfacts.ReceiptFacts(u, plan, nodes.Items, nus.Items, bundles.Items)
	facts.Now, facts.Cluster, facts.Refit = now, string(cluster.UID), componentversion.Refit()
	return newReceiptPage(explain.NewReceipt(facts))
}

// receiptPlan is the plan of an update, nil if there is none any more.
func (s *Server) receiptPlan(ctx context.Context, u *v1alpha1.ClusterUpdate) (*model.Plan, error) {
	if u.Status.Plan == "" {
		return nil, nil
	}
	p, err := plans.Load(ctx, s.reader, u.Status.Plan)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return &p, err
}

func newReceiptPage(r explain.Receipt) (*receiptPage, error) {
	file, err := explain.NewReceiptFile(r, nil)
	if err != nil {
		return nil, fmt.Errorf("receipt of update %s: %w", r.Update, err)
	}
	p := &receiptPage{Update: r.Update, Phase: r.Phase, Tone: receiptTone(&r), Text: file.Text(), Finished: r.Finished, Most: maxCode}
	if p.Bytes = len(p.Text); p.Bytes > maxCode {
		return p, nil
	}
	code, err := qr.Encode(p.Text, qr.L)
	if err != nil {
		return nil, fmt.Errorf("code of the receipt of update %s: %w", r.Update, err)
	}
	p.Code = &receiptCode{Size: code.Size + 2*quietZone, Path: codePath(code)}
	return p, nil
}

func receiptTone(r *explain.Receipt) string {
	switch {
	case r.Phase == v1alpha1.PhaseHalted:
		return toneBad
	case r.Finished:
		return toneOK
	}
	return toneRun
}

// codePath draws each run of black squares of a row as one rectangle.
func codePath(c *qr.Code) string {
	var b strings.Builder
	for y := range c.Size {
		for x := 0; x < c.Size; x++ {
			if !c.Black(x, y) {
				continue
			}
			from := x
			for c.Black(x+1, y) {
				x++
			}
			n := strconv.Itoa(x + 1 - from)
			b.WriteString("M" + strconv.Itoa(from+quietZone) + " " + strconv.Itoa(y+quietZone) + "h" + n + "v1h-" + n + "z")
		}
	}
	return b.String()
}
