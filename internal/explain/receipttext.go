package explain

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
)

// receiptTextMark is the first line of a receipt as text.
const receiptTextMark = "refit receipt v1"

// Text is the receipt in short lines for a mail, paper or a phone. It has everything that the
// JSON has. The line "check" finds a wrong letter, the line "signed" a changed receipt.
func (f ReceiptFile) Text() string {
	var b strings.Builder
	b.WriteString(receiptTextMark + "\n")
	for _, field := range receiptFields {
		for _, value := range field.write(&f.Receipt) {
			if value != "" {
				b.WriteString(field.key + " " + value + "\n")
			}
		}
	}
	b.WriteString("check " + checkWord(f.Digest) + "\n")
	if f.Envelope != nil {
		for _, s := range f.Envelope.Signatures {
			b.WriteString("signed " + s.KeyID + " " + base64.StdEncoding.EncodeToString(s.Sig) + "\n")
		}
	}
	return b.String()
}

// checkWord is the start of a digest in two groups of four digits.
func checkWord(digest string) string {
	_, hex, _ := strings.Cut(digest, ":")
	return hex[:4] + "-" + hex[4:8]
}

// receiptField is a line of the text, or several of one key.
type receiptField struct {
	key   string
	write func(*Receipt) []string
	// read takes the rest of a line.
	read func(r *Receipt, value string) error
}

// Forms of lines with several numbers.
const (
	unavailableForm = "%d s, at most %d s in a row"
	nodesForm       = "%d: %d done, %d failed, %d waiting"
)

// receiptFields are the lines in their order.
var receiptFields = []receiptField{
	lineField("cluster", func(r *Receipt) *string { return &r.Cluster }),
	lineField("site", func(r *Receipt) *string { return &r.Site }),
	{"contact", func(r *Receipt) []string { return r.Contact }, func(r *Receipt, v string) error { r.Contact = append(r.Contact, v); return nil }},
	timeField("created", func(r *Receipt) *time.Time { return &r.CreatedAt }),
	lineField("refit", func(r *Receipt) *string { return &r.Refit }),
	lineField("update", func(r *Receipt) *string { return &r.Update }),
	lineField("update-uid", func(r *Receipt) *string { return &r.UpdateUID }),
	lineField("phase", func(r *Receipt) *string { return &r.Phase }),
	{"paused", func(r *Receipt) []string {
		if r.Paused {
			return []string{"yes"}
		}
		return nil
	}, func(r *Receipt, v string) error { r.Paused = v == "yes"; return nil }},
	lineField("bundle", func(r *Receipt) *string { return &r.Bundle.Digest }),
	lineField("bundle-name", func(r *Receipt) *string { return &r.Bundle.Name }),
	lineField("bundle-version", func(r *Receipt) *string { return &r.Bundle.Version }),
	lineField("plan", func(r *Receipt) *string { return &r.PlanDigest }),
	{"from", func(r *Receipt) []string { return r.Kubernetes.From }, func(r *Receipt, v string) error { r.Kubernetes.From = append(r.Kubernetes.From, v); return nil }},
	lineField("to", func(r *Receipt) *string { return &r.Kubernetes.To }),
	timeField("started", func(r *Receipt) *time.Time { return &r.StartedAt }),
	timeField("finished", func(r *Receipt) *time.Time { return &r.FinishedAt }),
	{"unavailable", func(r *Receipt) []string {
		if r.Unavailable == 0 && r.Longest == 0 {
			return nil
		}
		return []string{fmt.Sprintf(unavailableForm, r.Unavailable, r.Longest)}
	}, func(r *Receipt, v string) error {
		_, err := fmt.Sscanf(v, unavailableForm, &r.Unavailable, &r.Longest)
		return err
	}},
	{"nodes", func(r *Receipt) []string {
		return []string{fmt.Sprintf(nodesForm, r.Nodes.Total, r.Nodes.Done, r.Nodes.Failed, r.Nodes.Waiting)}
	}, func(r *Receipt, v string) error {
		_, err := fmt.Sscanf(v, nodesForm, &r.Nodes.Total, &r.Nodes.Done, &r.Nodes.Failed, &r.Nodes.Waiting)
		return err
	}},
	{"version", func(r *Receipt) (out []string) {
		for _, v := range r.Versions {
			out = append(out, fmt.Sprint(v.Nodes)+" "+v.Version)
		}
		return out
	}, func(r *Receipt, v string) error {
		n, name, err := readCount(v)
		r.Versions = append(r.Versions, VersionCount{name, n})
		return err
	}},
	lineField("reason", func(r *Receipt) *string { return &r.Reason }),
	lineField("message", func(r *Receipt) *string { return &r.Message }),
	{"failure", func(r *Receipt) (out []string) {
		for _, c := range r.Failures {
			out = append(out, fmt.Sprint(c.Nodes)+" "+c.Reason)
		}
		return out
	}, func(r *Receipt, v string) error {
		n, name, err := readCount(v)
		r.Failures = append(r.Failures, ReasonCount{name, n})
		return err
	}},
	{"failed", func(r *Receipt) (out []string) {
		for _, n := range r.FailedNodes {
			out = append(out, strings.TrimSpace(n.Node+" "+n.Reason+" "+n.Step))
		}
		return out
	}, readFailed},
}

func lineField(key string, at func(*Receipt) *string) receiptField {
	return receiptField{key, func(r *Receipt) []string { return []string{*at(r)} }, func(r *Receipt, v string) error { *at(r) = v; return nil }}
}

func timeField(key string, at func(*Receipt) *time.Time) receiptField {
	return receiptField{key, func(r *Receipt) []string {
		if at(r).IsZero() {
			return nil
		}
		return []string{at(r).Format(time.RFC3339)}
	}, func(r *Receipt, v string) (err error) {
		*at(r), err = time.Parse(time.RFC3339, v)
		return err
	}}
}

func readCount(v string) (n int, name string, err error) {
	count, name, _ := strings.Cut(v, " ")
	n, err = strconv.Atoi(count)
	return n, name, err
}

func readFailed(r *Receipt, v string) error {
	f := strings.Fields(v)
	if len(f) < 2 || len(f) > 3 {
		return errors.New("node, reason and step expected")
	}
	n := FailedNode{Node: f[0], Reason: f[1]}
	if len(f) == 3 {
		n.Step = f[2]
	}
	r.FailedNodes = append(r.FailedNodes, n)
	return nil
}

// parseReceiptText reads what Text wrote. Empty lines and spaces around lines do not count, nor does
// the case of the check, which may come from a phone.
func parseReceiptText(s string) (ReceiptFile, error) {
	var r Receipt
	r.APIVersion, r.Kind = "refit.dev/receipt/v1", "Receipt"
	var signatures []bundle.Signature
	check := ""
	for i, l := range strings.Split(s, "\n") {
		l = strings.TrimSpace(l)
		if i == 0 && l == receiptTextMark || l == "" {
			continue
		}
		key, value, _ := strings.Cut(l, " ")
		var err error
		switch value = strings.TrimSpace(value); key {
		case "check":
			check = strings.ToLower(value)
		case "signed":
			signatures, err = addTextSignature(signatures, value)
		default:
			err = readReceiptLine(&r, key, value)
		}
		if err != nil {
			return ReceiptFile{}, fmt.Errorf("line %d, %.60q: %w", i+1, l, err)
		}
	}
	return textFile(r, check, signatures)
}

// textFile makes the file of the lines of a text.
func textFile(r Receipt, check string, signatures []bundle.Signature) (ReceiptFile, error) {
	r.Finished = isFinished(r.Phase)
	if problem := r.problem(); problem != "" {
		return ReceiptFile{}, errors.New(problem)
	}
	payload := encodeReceipt(r, "")
	f := ReceiptFile{Receipt: r, Digest: digestOf(payload)}
	if want := checkWord(f.Digest); check != want {
		return ReceiptFile{}, fmt.Errorf("its line \"check\" is %.60q, and %s is that of the other lines: a letter is wrong or a line is missing", check, want)
	}
	if len(signatures) > 0 {
		f.Envelope = &bundle.Envelope{PayloadType: ReceiptPayloadType, Payload: payload, Signatures: signatures}
	}
	return f, nil
}

func readReceiptLine(r *Receipt, key, value string) error {
	i := slices.IndexFunc(receiptFields, func(f receiptField) bool { return f.key == key })
	if i < 0 {
		return errors.New("this refit does not know such a line")
	}
	f := receiptFields[i]
	if err := f.read(r, value); err != nil {
		return err
	}
	if again := f.write(r); len(again) == 0 || again[len(again)-1] != value {
		return errors.New("it is not as refit writes it")
	}
	return nil
}

func addTextSignature(all []bundle.Signature, value string) ([]bundle.Signature, error) {
	id, sig, _ := strings.Cut(value, " ")
	b, err := base64.StdEncoding.Strict().DecodeString(sig)
	return append(all, bundle.Signature{KeyID: id, Sig: b}), err
}
