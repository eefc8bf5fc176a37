package vsphere

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/ovf/importer"
	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vim25/soap"

	"github.com/refit-dev/refit/providers/cloud"
)

// upload makes an item of an OVA. It has another name until vCenter has all bytes.
func (l *contentLibrary) upload(ctx context.Context, w cloud.Wanted, p cloud.Payload) error {
	there, err := l.resolve(ctx, w)
	if err != nil {
		return err
	}
	if there.Problem != "" {
		return errors.New(there.Problem)
	}
	if there.Exists {
		return nil
	}
	a, err := readArchive(p)
	if err != nil {
		return err
	}
	disks, err := a.disks()
	if err != nil {
		return err
	}
	item, err := l.leftover(ctx, w, a, disks)
	if err != nil {
		return err
	}
	if item == nil {
		if item, err = l.send(ctx, w, a, disks); err != nil {
			return err
		}
	}
	// One request gives it its name: refit's mark is on it already.
	if err := l.UpdateLibraryItem(ctx, &library.Item{ID: item.ID, Name: w.Name, Description: item.Description}); err != nil {
		return fmt.Errorf("rename item %s to %s: %w", item.Name, w.Name, err)
	}
	return nil
}

// disks are the files that the descriptor names.
func (a *archive) disks() ([]string, error) {
	env, err := importer.ReadEnvelope(a.descriptor)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range env.References {
		if _, ok := a.members[r.Href]; !ok {
			return nil, fmt.Errorf("the OVA does not have file %s of its descriptor", r.Href)
		}
		out = append(out, r.Href)
	}
	return out, nil
}

// leftover returns a complete item of this file that has no final name yet, nil if there is none.
// It deletes an incomplete one, or one of another file.
func (l *contentLibrary) leftover(ctx context.Context, w cloud.Wanted, a *archive, disks []string) (*library.Item, error) {
	name := w.Name + uploadSuffix
	items, err := l.items(ctx, name)
	if err != nil {
		return nil, err
	}
	for n := range items {
		i := &items[n]
		if itemSum(*i) == "" {
			return nil, fmt.Errorf("item %s exists and refit did not create it: delete or rename it", name)
		}
		if itemSum(*i) == w.Sum() {
			wrong, err := l.differs(ctx, i, a, disks)
			if err != nil {
				return nil, err
			}
			if wrong == "" {
				return i, nil
			}
		}
		if err := l.remove(ctx, i); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// remove ends the sessions of an item, which would keep it, and deletes it.
func (l *contentLibrary) remove(ctx context.Context, i *library.Item) error {
	sessions, err := l.ListLibraryItemUpdateSession(ctx)
	if err != nil {
		return fmt.Errorf("list the uploads to content libraries: %w", err)
	}
	for _, id := range sessions {
		s, err := l.GetLibraryItemUpdateSession(ctx, id)
		if err != nil || s.LibraryItemID != i.ID {
			continue // one that ended meanwhile, or another's
		}
		if s.State == sessionActive {
			_ = l.CancelLibraryItemUpdateSession(ctx, id)
		}
		_ = l.DeleteLibraryItemUpdateSession(ctx, id)
	}
	if err := l.DeleteLibraryItem(ctx, i); err != nil {
		return fmt.Errorf("delete the incomplete item %s: %w", i.Name, err)
	}
	return nil
}

// send creates an item with refit's mark, sends the files of the OVA, and compares them.
func (l *contentLibrary) send(ctx context.Context, w cloud.Wanted, a *archive, disks []string) (*library.Item, error) {
	description := itemMark + w.Sum()
	i := library.Item{Name: w.Name + uploadSuffix, Description: &description, LibraryID: l.lib.ID, Type: library.ItemTypeOVF}
	var err error
	if i.ID, err = l.CreateLibraryItem(ctx, i); err != nil {
		return nil, fmt.Errorf("create item %s: %w", i.Name, err)
	}
	wrong, err := "", l.sendFiles(ctx, &i, a, disks)
	if err == nil {
		wrong, err = l.differs(ctx, &i, a, disks)
	}
	if wrong != "" {
		err = errors.New("vCenter received other bytes: " + wrong)
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = l.remove(ctx, &i) // else the next upload does
		return nil, err
	}
	return &i, nil
}

// sessionActive is the state of an upload that has not ended.
const sessionActive = "ACTIVE"

// sendFiles sends descriptor and disks in one session, and waits until vCenter has stored them.
func (l *contentLibrary) sendFiles(ctx context.Context, i *library.Item, a *archive, disks []string) error {
	session, err := l.CreateLibraryItemUpdateSession(ctx, library.Session{LibraryItemID: i.ID})
	if err != nil {
		return fmt.Errorf("start the upload of item %s: %w", i.Name, err)
	}
	for _, name := range append([]string{a.name}, disks...) {
		if err := l.sendFile(ctx, session, name, a); err != nil {
			return fmt.Errorf("send %s: %w", name, err)
		}
	}
	if err := l.CompleteLibraryItemUpdateSession(ctx, session); err != nil {
		return fmt.Errorf("end the upload of item %s: %w", i.Name, err)
	}
	if err := l.wait(ctx, session); err != nil {
		return fmt.Errorf("vCenter does not store item %s: %w", i.Name, err)
	}
	_ = l.DeleteLibraryItemUpdateSession(ctx, session) // vCenter forgets it later
	return nil
}

// sessionHeader has the session of an upload or of a user.
const sessionHeader = "vmware-api-session-id"

// sendFile sends one file. vCenter compares it with the SHA-256 while it receives it.
func (l *contentLibrary) sendFile(ctx context.Context, session, name string, a *archive) error {
	r, m, err := a.file(name)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := l.AddLibraryItemFile(ctx, session, library.UpdateFile{Name: name, SourceType: "PUSH", Size: m.size, Checksum: &library.Checksum{Algorithm: "SHA256", Checksum: m.sha256}})
	if err != nil {
		return err
	}
	if f.UploadEndpoint == nil {
		return errors.New("vCenter names no address for it")
	}
	u, err := url.Parse(f.UploadEndpoint.URI)
	if err != nil {
		return err
	}
	p := soap.DefaultUpload
	p.ContentLength, p.Headers = m.size, map[string]string{sessionHeader: session}
	return l.client.Upload(ctx, r, u, &p)
}

// file returns the descriptor or another member.
func (a *archive) file(name string) (io.ReadCloser, member, error) {
	if name == a.name {
		sum := sha256.Sum256(a.descriptor)
		return io.NopCloser(bytes.NewReader(a.descriptor)), member{size: int64(len(a.descriptor)), sha256: hex.EncodeToString(sum[:])}, nil
	}
	r, err := a.open(name)
	return r, a.members[name], err
}

// Waits between questions: the first, and the longest.
const (
	firstWait   = 20 * time.Millisecond
	longestWait = 5 * time.Second
)

// wait waits until an upload has ended.
func (l *contentLibrary) wait(ctx context.Context, session string) error {
	for pause := firstWait; ; pause = min(2*pause, longestWait) {
		s, err := l.GetLibraryItemUpdateSession(ctx, session)
		switch {
		case err != nil:
			return err
		case s.State == "DONE":
			return nil
		case s.State != sessionActive && s.ErrorMessage != nil:
			return s.ErrorMessage
		case s.State != sessionActive:
			return fmt.Errorf("the upload is in state %s", s.State)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// differs returns what an item has other than the file, empty for nothing. vCenter may write the
// descriptor anew, so only the disks are compared.
func (l *contentLibrary) differs(ctx context.Context, i *library.Item, a *archive, disks []string) (string, error) {
	files, err := l.ListLibraryItemFiles(ctx, i.ID)
	if err != nil {
		return "", fmt.Errorf("list the files of item %s: %w", i.Name, err)
	}
	if !slices.ContainsFunc(files, func(f library.File) bool { return strings.HasSuffix(f.Name, ".ovf") }) {
		return "it has no descriptor", nil
	}
	for _, name := range disks {
		n := slices.IndexFunc(files, func(f library.File) bool { return f.Name == name })
		if n < 0 {
			return "it has no file " + name, nil
		}
		wrong, err := l.fileDiffers(ctx, i, files[n], a.members[name])
		if wrong != "" || err != nil {
			return wrong, err
		}
	}
	return "", nil
}

// fileDiffers compares a file by vCenter's checksum. If vCenter reports none, refit reads the file.
func (l *contentLibrary) fileDiffers(ctx context.Context, i *library.Item, f library.File, m member) (string, error) {
	if f.Size != nil && *f.Size != m.size {
		return fmt.Sprintf("%s has %d bytes, the file %d", f.Name, *f.Size, m.size), nil
	}
	want, got := m.sha256, ""
	if c := f.Checksum; c != nil {
		switch strings.ToUpper(c.Algorithm) {
		case "SHA256":
			got = c.Checksum
		case "SHA1", "":
			want, got = m.sha1, c.Checksum
		}
	}
	if got == "" {
		var err error
		if got, err = l.download(ctx, i, f.Name); err != nil {
			return "", fmt.Errorf("read %s of item %s: %w", f.Name, i.Name, err)
		}
	}
	if !strings.EqualFold(got, want) {
		return fmt.Sprintf("the checksum of %s is %s, the file has %s", f.Name, got, want), nil
	}
	return "", nil
}

// download returns the SHA-256 of a file of an item.
func (l *contentLibrary) download(ctx context.Context, i *library.Item, name string) (string, error) {
	session, err := l.CreateLibraryItemDownloadSession(ctx, library.Session{LibraryItemID: i.ID})
	if err != nil {
		return "", err
	}
	defer func() { _ = l.DeleteLibraryItemDownloadSession(context.WithoutCancel(ctx), session) }()
	if _, err := l.PrepareLibraryItemDownloadSessionFile(ctx, session, name); err != nil {
		return "", err
	}
	for pause := firstWait; ; pause = min(2*pause, longestWait) {
		f, err := l.GetLibraryItemDownloadSessionFile(ctx, session, name)
		if err != nil {
			return "", err
		}
		if f.Status == "PREPARED" && f.DownloadEndpoint != nil {
			return l.sum(ctx, f.DownloadEndpoint.URI)
		}
		if err := sleep(ctx, pause); err != nil {
			return "", err
		}
	}
}

// sum returns the SHA-256 of what an address of vCenter sends.
func (l *contentLibrary) sum(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	p := soap.DefaultDownload
	p.Headers = map[string]string{sessionHeader: l.client.SessionID()}
	r, _, err := l.client.Download(ctx, u, &p)
	if err != nil {
		return "", err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hexSum(h), nil
}
