package inputs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refit-dev/refit/internal/imagetag/imagerefs"
)

const (
	// defaultPage is the number of objects in one answer.
	defaultPage = 500
	// pageTimeout bounds one answer: an API server that hangs must not hang the command.
	pageTimeout = 2 * time.Minute
	// maxObject bounds one object in bytes.
	maxObject = imagerefs.MaxSize
	// maxObjects bounds what a server makes the command read.
	maxObjects = 5_000_000
)

// list reads all pages of a kind. A kind that the account must not list is noted.
func (r *clusterReader) list(ctx context.Context, k *listedKind) error {
	for token := ""; ; {
		next, err := r.onePage(ctx, k, token)
		switch {
		case apierrors.IsForbidden(err):
			r.deny(k.resource())
			return nil
		case k.custom && apierrors.IsNotFound(err): // removed since its discovery
			return nil
		case token != "" && apierrors.IsResourceExpired(err) && continueOf(err) != "":
			// The list got old. The server goes on with newer objects: none that stays is missed.
			next = continueOf(err)
		case err != nil:
			return err
		}
		if next == "" {
			return nil
		}
		if next == token {
			return errors.New("the API server answers with the same page again")
		}
		token = next
	}
}

// continueOf is where a list goes on that got too old.
func continueOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// onePage reads one answer and returns the token of the next.
func (r *clusterReader) onePage(ctx context.Context, k *listedKind, token string) (next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	req := r.client.Get().AbsPath(k.path).Param("limit", strconv.Itoa(r.page))
	if token != "" {
		req = req.Param("continue", token)
	}
	r.out.Requests++
	body, err := req.Stream(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	return decodeList(body, func(raw json.RawMessage) error { return r.item(k, raw) })
}

// decodeList calls f for the items of a list while it arrives, and returns its continue token.
// The end of the list must be there.
func decodeList(from io.Reader, f func(json.RawMessage) error) (next string, err error) {
	b := &bounded{from: from, left: maxObject}
	d := json.NewDecoder(b)
	if err := delim(d, '{'); err != nil {
		return "", err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", whole(err)
		}
		var meta struct {
			Continue string `json:"continue"`
		}
		switch key {
		case "items":
			err = decodeItems(d, b, f)
		case "metadata":
			err = d.Decode(&meta)
			next = meta.Continue
		default:
			var other json.RawMessage
			err = d.Decode(&other)
		}
		if err != nil {
			return "", whole(err)
		}
		b.left = maxObject
	}
	return next, delim(d, '}')
}

func decodeItems(d *json.Decoder, b *bounded, f func(json.RawMessage) error) error {
	t, err := d.Token()
	if err != nil || t == nil { // null: no items
		return err
	}
	if t != json.Delim('[') {
		return fmt.Errorf("items is %v, not a list", t)
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		b.left = maxObject
		if err := f(raw); err != nil {
			return err
		}
	}
	return delim(d, ']')
}

// delim reads one delimiter.
func delim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err != nil {
		return whole(err)
	}
	if t != want {
		return fmt.Errorf("the answer is no list: %v in place of %v", t, want)
	}
	return nil
}

// whole names an answer that ends early.
func whole(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the answer ends before the list does: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// bounded ends an answer that would need unlimited memory: the decoder keeps one object at a time.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("an object has more than %d bytes", maxObject)
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.left)]) // the decoder's buffer may be larger
	b.left -= int64(n)
	return n, err
}
