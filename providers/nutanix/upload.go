package nutanix

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/refit-dev/refit/providers/cloud"
)

// Upload makes an image from a file.
func (c *Cloud) Upload(ctx context.Context, w cloud.Wanted, p cloud.Payload) error {
	s, err := c.session()
	if err != nil {
		return err
	}
	there, err := s.named(ctx, w.Name)
	if err != nil {
		return err
	}
	for _, i := range there {
		if !incomplete(i) {
			return occupied(there, w)
		}
		if err := s.delete(ctx, i.Metadata.UUID); err != nil {
			return fmt.Errorf("delete the incomplete upload %s: %w", i.Metadata.UUID, err)
		}
	}
	id, err := s.create(ctx, w)
	if err != nil {
		return fmt.Errorf("create image %s: %w", w.Name, err)
	}
	if err := c.sendFile(ctx, s, id, p); err != nil {
		s.discard(ctx, id)
		return fmt.Errorf("image %s: %w", id, err)
	}
	return c.markVerified(ctx, s, id, w)
}

// occupied returns why an image cannot have its name, nil if it is there already.
func occupied(there []image, w cloud.Wanted) error {
	if a := describe(there, w); a.Problem != "" {
		return errors.New(a.Problem)
	}
	return nil
}

func (s *session) delete(ctx context.Context, id string) error {
	err := s.json(ctx, http.MethodDelete, "/"+id, nil, nil)
	if errors.Is(err, errNotFound) {
		return nil
	}
	return err
}

// discard deletes a failed upload, so that nothing starts from it. The next upload does the same.
func (s *session) discard(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_ = s.delete(ctx, id)
}

// create makes an image without contents.
func (s *session) create(ctx context.Context, w cloud.Wanted) (id string, err error) {
	resources := map[string]any{"image_type": "DISK_IMAGE"}
	if w.Key.Architecture == "amd64" {
		resources["architecture"] = "X86_64"
	}
	spec := map[string]any{"name": w.Name, "description": markPrefix + w.Sum() + markOpen, "resources": resources}
	var i image
	err = s.json(ctx, http.MethodPost, "", map[string]any{"spec": spec, "metadata": map[string]any{"kind": "image"}}, &i)
	if err == nil && i.Metadata.UUID == "" {
		err = errors.New("answer of Prism without a uuid")
	}
	return i.Metadata.UUID, err
}

// sendFile sends the bytes and compares what Prism has of them.
func (c *Cloud) sendFile(ctx context.Context, s *session, id string, p cloud.Payload) error {
	if _, err := c.settled(ctx, s, id); err != nil {
		return err
	}
	r, err := p.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	resp, err := s.send(ctx, http.MethodPut, "/"+id+"/file", "application/octet-stream", r, p.Size)
	if err != nil {
		return fmt.Errorf("send %s: %w", p.Path, err)
	}
	resp.Body.Close()
	i, err := c.settled(ctx, s, id)
	if err != nil {
		return err
	}
	if got := i.Status.Resources.SizeBytes; got != p.Size {
		return fmt.Errorf("it has %d bytes, the file has %d", got, p.Size)
	}
	got := i.Status.Resources.Checksum.Value
	if i.Status.Resources.Checksum.Algorithm != "SHA_256" {
		if got, err = s.readBack(ctx, id); err != nil {
			return fmt.Errorf("read it back: %w", err)
		}
	}
	if !strings.EqualFold(got, p.SHA256) {
		return fmt.Errorf("other bytes received by Prism: their SHA-256 is %s, the file has %s", got, p.SHA256)
	}
	return nil
}

// readBack returns the SHA-256 of the bytes that Prism has.
func (s *session) readBack(ctx context.Context, id string) (string, error) {
	resp, err := s.send(ctx, http.MethodGet, "/"+id+"/file", "application/json", nil, 0)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, resp.Body)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// defaultPoll is how often an image is observed while Prism processes it.
const defaultPoll = 2 * time.Second

// settled waits until Prism processes an image no more.
func (c *Cloud) settled(ctx context.Context, s *session, id string) (image, error) {
	every := c.Poll
	if every == 0 {
		every = defaultPoll
	}
	for {
		var i image
		if err := s.json(ctx, http.MethodGet, "/"+id, nil, &i); err != nil {
			return i, err
		}
		switch i.Status.State {
		case stateComplete:
			return i, nil
		case stateError:
			return i, errors.New("state ERROR in Prism")
		}
		select {
		case <-ctx.Done():
			return i, ctx.Err()
		case <-time.After(every):
		}
	}
}

// markVerified writes the description. Prism replaces the whole specification, so refit sends
// what it read, with the version that it read.
func (c *Cloud) markVerified(ctx context.Context, s *session, id string, w cloud.Wanted) error {
	var whole map[string]any
	if err := s.json(ctx, http.MethodGet, "/"+id, nil, &whole); err != nil {
		return err
	}
	spec, _ := whole["spec"].(map[string]any)
	if spec == nil {
		return errors.New("answer of Prism without a specification")
	}
	spec["description"] = markPrefix + w.Sum() + markVerified
	if err := s.json(ctx, http.MethodPut, "/"+id, map[string]any{"spec": spec, "metadata": whole["metadata"]}, nil); err != nil {
		return fmt.Errorf("mark image %s as verified: %w", id, err)
	}
	_, err := c.settled(ctx, s, id)
	return err
}
