package explain

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/refit-dev/refit/internal/pipeline/bundle"
	"github.com/refit-dev/refit/internal/text"
)

// ReceiptPayloadType is the DSSE payload type of a signed receipt.
const ReceiptPayloadType = "application/vnd.refit.receipt.v1+json"

// MaxReceiptFile is the size of the largest file that can be a receipt, in bytes. It has room for
// what later versions add.
const MaxReceiptFile = 4 * maxReceipt

// ReceiptFile is a receipt and, if it is signed, the envelope that it was in.
type ReceiptFile struct {
	Receipt  Receipt
	Envelope *bundle.Envelope
	// Digest is that of the payload: two files with one digest are one receipt.
	Digest string
}

// NewReceiptFile signs a receipt, if there is a key.
func NewReceiptFile(r Receipt, key ed25519.PrivateKey) (ReceiptFile, error) {
	payload := encodeReceipt(r, "")
	f := ReceiptFile{Receipt: r, Digest: digestOf(payload)}
	if key == nil {
		return f, nil
	}
	e, err := bundle.SignPayload(key, ReceiptPayloadType, payload)
	f.Envelope = &e
	return f, err
}

// JSON is the file: the receipt with indentation, or its envelope.
func (f ReceiptFile) JSON() []byte {
	if f.Envelope == nil {
		return encodeReceipt(f.Receipt, " ")
	}
	return encodeJSON(f.Envelope, "")
}

func encodeReceipt(r Receipt, indent string) []byte {
	b := encodeJSON(r, indent)
	if indent == "" {
		b = bytes.TrimSuffix(b, []byte("\n"))
	}
	return b
}

func encodeJSON(v any, indent string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		panic(err) // texts, numbers and times of four-digit years
	}
	return b.Bytes()
}

func digestOf(payload []byte) string {
	sum := sha256.Sum256(payload)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// IsReceipt reports whether a file is a receipt by its content, also one that is damaged.
func IsReceipt(data []byte) bool {
	data = trimFile(data)
	if bytes.HasPrefix(data, []byte(receiptTextMark)) {
		return true
	}
	return bytes.HasPrefix(data, []byte("{")) && (bytes.Contains(data, []byte("refit.dev/receipt/")) || bytes.Contains(data, []byte("vnd.refit.receipt.")))
}

// trimFile removes spaces, and the mark that editors put before text.
func trimFile(data []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
}

// ParseReceipt reads a receipt: JSON, an envelope, or text. It does not verify signatures.
func ParseReceipt(data []byte) (ReceiptFile, error) {
	if len(data) > MaxReceiptFile {
		return ReceiptFile{}, fmt.Errorf("it has %d bytes, %d are allowed", len(data), MaxReceiptFile)
	}
	if text := trimFile(data); bytes.HasPrefix(text, []byte(receiptTextMark)) {
		return parseReceiptText(string(text))
	}
	var e bundle.Envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return ReceiptFile{}, fmt.Errorf("it is no JSON: %w", err)
	}
	if e.PayloadType == "" {
		r, err := parsePayload(data)
		return ReceiptFile{Receipt: r, Digest: digestOf(encodeReceipt(r, ""))}, err
	}
	if e.PayloadType != ReceiptPayloadType {
		return ReceiptFile{}, fmt.Errorf("it is signed as %q, not as a receipt", e.PayloadType)
	}
	if !bytes.Equal(encodeJSON(e, ""), data) {
		return ReceiptFile{}, errors.New("its envelope is not as refit writes it: a byte was changed")
	}
	r, err := parsePayload(e.Payload)
	return ReceiptFile{Receipt: r, Envelope: &e, Digest: digestOf(e.Payload)}, err
}

func parsePayload(payload []byte) (Receipt, error) {
	var r Receipt
	if err := json.Unmarshal(payload, &r); err != nil {
		return Receipt{}, err
	}
	if problem := r.problem(); problem != "" {
		return Receipt{}, errors.New(problem)
	}
	return r, nil
}

// problem returns why a value cannot be a receipt, "" if it can. Fields and words of later
// versions are allowed.
func (r *Receipt) problem() string {
	switch {
	case r.APIVersion != "refit.dev/receipt/v1" || r.Kind != "Receipt":
		return fmt.Sprintf("it is %.60q of version %.60q, not a receipt that this refit reads", r.Kind, r.APIVersion)
	case r.Cluster == "" || r.Update == "" || r.UpdateUID == "" || r.CreatedAt.IsZero():
		return "it does not name its cluster, its update and its time"
	case !slicesFit(r) || slices.Contains(r.Contact, ""):
		return "a list in it is longer than a receipt's, or has an empty line"
	case r.Nodes.Total != r.Nodes.Done+r.Nodes.Failed+r.Nodes.Waiting:
		return "its numbers of nodes do not add up"
	}
	return firstProblem(r.problemOfTexts(), r.problemOfNumbers(), r.problemOfTimes())
}

func firstProblem(all ...string) string {
	for _, p := range all {
		if p != "" {
			return p
		}
	}
	return ""
}

func slicesFit(r *Receipt) bool {
	return len(r.Contact) <= maxContacts && len(r.Kubernetes.From) <= maxCounts && len(r.Versions) <= maxCounts && len(r.Failures) <= maxCounts && len(r.FailedNodes) <= maxFailedNodes
}

// problemOfTexts checks that each text is one clean line, and each word a word: the table and the
// text form have one place for each.
func (r *Receipt) problemOfTexts() string {
	lines := append([]string{r.Site, r.Update, r.Bundle.Digest, r.Bundle.Name, r.Bundle.Version, r.PlanDigest, r.Kubernetes.To, r.Message}, r.Contact...)
	for _, s := range lines {
		if s != line(s, maxText) {
			return fmt.Sprintf("%.60q is not one line of at most %d bytes", s, maxText)
		}
	}
	words := append([]string{r.Cluster, r.Refit, r.UpdateUID, r.Phase}, r.Kubernetes.From...)
	for _, v := range r.Versions {
		words = append(words, v.Version)
	}
	for _, c := range r.Failures {
		words = append(words, c.Reason)
	}
	for _, n := range r.FailedNodes {
		words = append(words, n.Node, n.Reason, orNoWord(n.Step))
	}
	for _, s := range append(words, orNoWord(r.Reason)) {
		if s == "" || s != joinWords(s, maxLine) {
			return fmt.Sprintf("%.60q is not one word", s)
		}
	}
	return ""
}

func (r *Receipt) problemOfNumbers() string {
	numbers := []int64{int64(r.Nodes.Total), int64(r.Nodes.Done), int64(r.Nodes.Failed), int64(r.Nodes.Waiting), r.Unavailable, r.Longest}
	for _, v := range r.Versions {
		numbers = append(numbers, int64(v.Nodes))
	}
	for _, c := range r.Failures {
		numbers = append(numbers, int64(c.Nodes))
	}
	for _, n := range numbers {
		if n < 0 || n > maxNumber {
			return fmt.Sprintf("%d is not a number of nodes or seconds", n)
		}
	}
	return ""
}

// maxNumber keeps sums over many receipts from overflowing.
const maxNumber = 1_000_000_000

func (r *Receipt) problemOfTimes() string {
	if r.CreatedAt != second(r.CreatedAt) || r.StartedAt != second(r.StartedAt) || r.FinishedAt != second(r.FinishedAt) {
		return "a time in it is not in whole seconds of UTC"
	}
	return ""
}

// States of a checked receipt.
const (
	ReceiptCounted        = "Counted"
	ReceiptDamaged        = "Damaged"
	ReceiptUnsigned       = "Unsigned"
	ReceiptUnknownKey     = "UnknownKey"
	ReceiptWrongSignature = "WrongSignature"
	// ReceiptUnreadable is a file that cannot be read.
	ReceiptUnreadable = "Unreadable"
)

// CheckedReceipt is a file that was read for a summary.
type CheckedReceipt struct {
	File  string
	State string
	// Message is the reason why it is not counted.
	Message string
	// SignedBy names the keys with a valid signature; none without keys.
	SignedBy []string
	ReceiptFile
}

// CheckReceipt parses a file and verifies its signature by one of the keys, if there are any.
func CheckReceipt(file string, data []byte, keys map[string]ed25519.PublicKey) CheckedReceipt {
	f, err := ParseReceipt(data)
	c := CheckedReceipt{File: file, State: ReceiptCounted, ReceiptFile: f}
	reject := func(state, message string) CheckedReceipt {
		c.State, c.Message = state, message
		return c
	}
	if err != nil {
		return reject(ReceiptDamaged, text.CleanLine(err.Error()))
	}
	if len(keys) == 0 {
		return c
	}
	if f.Envelope == nil {
		return reject(ReceiptUnsigned, "it is not signed")
	}
	if c.SignedBy = f.Envelope.SignedBy(keys); len(c.SignedBy) > 0 {
		return c
	}
	for _, s := range f.Envelope.Signatures {
		for name, k := range keys {
			if s.KeyID == bundle.KeyID(k) {
				return reject(ReceiptWrongSignature, "the signature with the id of key "+name+" is not one of this receipt")
			}
		}
	}
	return reject(ReceiptUnknownKey, "no key of --pub signed it")
}
