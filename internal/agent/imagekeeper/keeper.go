package imagekeeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/refit-dev/refit/internal/agent/host/containerd"
	"github.com/refit-dev/refit/internal/failpoint"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/fsutil/statefile"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/pipeline/pin"
)

// Runtime is a container runtime that keeps images.
type Runtime interface {
	// Present lists the images, as CRI reports them.
	Present(ctx context.Context) ([]pin.RuntimeImage, error)
	// Load imports an image and pins it; Pin pins one that is there (ok is false if it
	// is not). Both return the names that carry the pin.
	Load(ctx context.Context, img containerd.Image, blobs containerd.Blobs) (names []string, err error)
	Pin(ctx context.Context, img containerd.Image) (names []string, ok bool, err error)
	Unpin(ctx context.Context, names []string) error
}

// Puller is a Runtime that can pull an image from a registry itself, and pins it as Load
// does.
type Puller interface {
	Pull(ctx context.Context, img containerd.Image) (names []string, err error)
}

// Preparer is a Runtime that has images and pins in its configuration. It gets all names of
// a pass beforehand, because a change of its configuration takes longer than an image.
type Preparer interface {
	// Names are those by which Load and Pin will pin an image.
	Names(img containerd.Image) []string
	// Prepare pins names, including those of images that are loaded next, and restores
	// earlier pins that were lost; load are the images that Load is called for
	// afterwards. end is called when that is over, in any case.
	Prepare(ctx context.Context, names []string, load []containerd.Image, blobs containerd.Blobs) (end func(context.Context) error, err error)
}

// Source knows the images of bundles.
type Source interface {
	// Image describes a pinned image; ok is false while blobs are missing.
	Image(img model.PinSetImage) (out containerd.Image, ok bool)
	// Refuses reports whether an image must be neither loaded nor pinned.
	Refuses(img model.PinSetImage) bool
	// MayPull reports whether the runtime may pull it from a registry now.
	MayPull(img model.PinSetImage) bool
	containerd.Blobs
}

// Result is what the node has now.
type Result struct {
	// Total of bundles, held and pinned; of registries FetchedTotal, and Fetched
	// that are held and pinned.
	Total, Held, Pinned   int
	FetchedTotal, Fetched int
	// Waiting counts images with missing blobs, and refused ones.
	Waiting int
	// Failed says which image could not be loaded or pinned, and why.
	Failed map[string]error
	// Full is the image at which the disk had no space left: no further image was loaded.
	Full string
	// Restored are images that were pinned, went missing, and were restored.
	Restored []Restored
}

// Restored is an image that was restored.
type Restored struct {
	Image model.PinSetImage
	// FromLocalBlobs: this node still had the blobs; otherwise they had to come again.
	FromLocalBlobs bool
}

// Complete reports that everything of bundles is held and pinned.
func (r Result) Complete() bool { return r.Pinned == r.Total && r.Held == r.Total }

// Parallel is a Runtime that can load several images at once: unpacking is work for a
// processor, and one image keeps only one of them busy.
type Parallel interface{ MaxParallel() int }

// Keeper keeps one node's images. One Sync at a time.
type Keeper struct {
	runtime Runtime
	path    string

	// mu guards what follows, and the result of a Sync: images are loaded side by side.
	mu  sync.Mutex
	own pin.OwnPins
	// lost: the record was damaged, and the runtime's knowledge of it is not read yet.
	lost bool
	// unsaved: the record could not be written.
	unsaved bool
	report  statefile.Note
	// wasPinned are the images that were held and pinned last; false if their blobs were
	// missing too when the image was. The record at the start counts: an earlier process
	// of the agent pinned its images.
	wasPinned map[string]bool
	// loaded are images that refit loaded itself; loadedUnsaved: the list could not be
	// written.
	loaded        loadedImages
	loadedUnsaved bool
}

// Owner is a Runtime that knows which pins are refit's own.
type Owner interface {
	// OwnPins are the names that carry a pin of refit.
	OwnPins(ctx context.Context) ([]string, error)
}

// recoveredKey is the key in the record for pins of refit whose image is unknown, because
// the record was lost. No image has it, so they are released once all wanted images have
// pins of their own.
const recoveredKey = "recovered"

// firstContactFile is written by the installer: it names the images of refit itself.
const firstContactFile = "first-contact.json"

// NewKeeper reads the record of own pins in dir. A damaged record is rebuilt from the
// runtime; a pin that others made is never in it.
func NewKeeper(rt Runtime, dir string, note statefile.Note) *Keeper {
	k := &Keeper{runtime: rt, path: filepath.Join(dir, "pins.json"), own: pin.OwnPins{}, wasPinned: map[string]bool{}, report: note}
	k.loaded = readLoaded(filepath.Join(dir, loadedFile), note)
	damaged := func(p statefile.Problem) {
		k.lost = true
		note(p)
	}
	if !statefile.Read(k.path, "the record of pins is rebuilt from what the container runtime has", k.decodeRecord, damaged) {
		k.own = pin.OwnPins{}
	}
	for key, names := range k.own {
		if len(names) > 0 && key != recoveredKey {
			k.wasPinned[key] = true
		}
	}
	return k
}

func (k *Keeper) decodeRecord(b []byte) error {
	err := json.Unmarshal(b, &k.own)
	if err == nil && k.own == nil {
		return errors.New("it is not a record of pins")
	}
	return err
}

// recoverPins restores the pins of a lost record. The images that the installer pinned stay
// out of it: they are not of a pin set and must not be released.
func (k *Keeper) recoverPins(ctx context.Context) error {
	rt, ok := k.runtime.(Owner)
	if !k.lost || !ok {
		return nil
	}
	names, err := rt.OwnPins(ctx)
	if err != nil {
		return err
	}
	var contact struct{ Names []string }
	statefile.Read(filepath.Join(filepath.Dir(k.path), firstContactFile), "only uninstall needs it", func(b []byte) error { return json.Unmarshal(b, &contact) }, k.report)
	names = slices.DeleteFunc(names, func(n string) bool { return slices.Contains(contact.Names, n) })
	k.lost = false
	if len(names) == 0 {
		return nil
	}
	k.own[recoveredKey] = names
	return k.saveRecord()
}

// releasable is the record by which pins are released. While a wanted image has no pin of
// its own, pins of unknown images are left out: one of them may be that image's.
func (k *Keeper) releasable(r Result) pin.OwnPins {
	if r.Waiting == 0 && len(r.Failed) == 0 {
		return k.own
	}
	own := maps.Clone(k.own)
	delete(own, recoveredKey)
	return own
}

// Known are the images (by pin.Key) that were held and pinned once and are still wanted. It
// is false for those whose blobs were missing too: the node may still wait for them. It may
// be called at any time.
func (k *Keeper) Known() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.wasPinned)
}

// RecordComplete reports whether the record names the image of each pin: a damaged one was
// rebuilt from the runtime, which does not know them.
func (k *Keeper) RecordComplete() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.lost && k.own[recoveredKey] == nil
}

// Sync does what is missing and returns the result. It calls progress after every load;
// progress never gets a complete result, only the return value may be complete.
func (k *Keeper) Sync(ctx context.Context, want []model.PinSetImage, src Source, progress func(Result)) (Result, error) {
	have, err := k.runtime.Present(ctx)
	if err == nil {
		err = k.recoverPins(ctx)
	}
	if err != nil {
		return Result{}, err
	}
	if k.unsaved { // there may be free space now
		if err := k.saveRecord(); err != nil {
			return Result{}, err
		}
	}
	allowed := slices.DeleteFunc(slices.Clone(want), src.Refuses)
	d := pin.Decide(allowed, have, k.own)
	l := model.PinSet{Images: want}
	r := Result{Held: d.Loaded, Pinned: d.Pinned, Fetched: d.Fetched, Failed: map[string]error{}}
	r.Total, r.FetchedTotal = l.CountImages()
	end, err := k.prepare(ctx, d, src)
	if err == nil && !d.Done() {
		r, err = k.applyDecision(ctx, want, allowed, have, d, src, r, progress)
	} else {
		r.Waiting += len(want) - len(allowed)
	}
	// In any case: end removes what was only for loading.
	return r, errors.Join(err, end(context.WithoutCancel(ctx)))
}

// prepare announces the images to a runtime that needs it. The names are in the record
// first, so that pins which a crash leaves are known, and released if they are not wanted.
func (k *Keeper) prepare(ctx context.Context, d pin.Decision, src Source) (end func(context.Context) error, err error) {
	rt, ok := k.runtime.(Preparer)
	if !ok {
		return func(context.Context) error { return nil }, nil
	}
	var names []string
	var load []containerd.Image
	addNames := func(img model.PinSetImage, what containerd.Image) {
		k.own[pin.Key(img)] = rt.Names(what)
	}
	for _, img := range d.Pin {
		addNames(img, containerd.Image{Name: img.Name, Digest: img.Digest})
	}
	for _, img := range d.Load {
		if what, ok := src.Image(img); ok {
			addNames(img, what)
			load = append(load, what)
		}
	}
	if len(d.Pin)+len(load) > 0 {
		if err := k.saveRecord(); err != nil {
			return func(context.Context) error { return nil }, err
		}
	}
	for _, of := range k.own {
		names = append(names, of...)
	}
	// Names that are released in this pass are unpinned a moment later.
	return rt.Prepare(ctx, names, load, src)
}

// applyDecision does what was decided about the allowed images.
func (k *Keeper) applyDecision(ctx context.Context, want, allowed []model.PinSetImage, have []pin.RuntimeImage, d pin.Decision, src Source, r Result, progress func(Result)) (Result, error) {
	k.loadAll(ctx, d.Load, src, &r, progress)
	for _, img := range d.Pin {
		k.syncImage(ctx, img, src, &r)
	}
	waiting := r.Waiting
	r.Waiting += len(want) - len(allowed)
	// Decide again: a name may have another image by now, and carry its pin. A refused image
	// counts as wanted: what it may have is not released for it.
	if err := k.release(ctx, pin.Decide(want, have, k.releasable(r))); err != nil {
		return r, err
	}
	r.Waiting = waiting
	r, err := k.awaitPresent(ctx, allowed, r)
	r.Waiting += len(want) - len(allowed)
	return r, err
}

// loadAll loads images, as many at once as the runtime can.
func (k *Keeper) loadAll(ctx context.Context, all []model.PinSetImage, src Source, r *Result, progress func(Result)) {
	load := func(img model.PinSetImage) {
		ok := k.syncImage(ctx, img, src, r)
		k.mu.Lock()
		defer k.mu.Unlock()
		if ok && !img.Registry {
			// Progress only: the runtime decides whether all are held.
			r.Held, r.Pinned = min(r.Held+1, r.Total), min(r.Pinned+1, r.Total-1)
		}
		progress(*r)
	}
	rt, ok := k.runtime.(Parallel)
	if !ok {
		for _, img := range all {
			load(img)
		}
		return
	}
	var group errgroup.Group
	group.SetLimit(max(rt.MaxParallel(), 1))
	for _, img := range all {
		group.Go(func() error {
			load(img)
			return nil
		})
	}
	_ = group.Wait() // what failed is in the result
}

// syncImage loads or pins an image and reports whether it did.
func (k *Keeper) syncImage(ctx context.Context, img model.PinSetImage, src Source, r *Result) bool {
	if ctx.Err() != nil {
		return false
	}
	if k.stopped(r) {
		return false
	}
	ok, err := k.load(ctx, img, src, r)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil:
		r.Failed[img.Name] = err
		if r.Full == "" && fsutil.IsFull(err) {
			r.Full = img.Name
		}
	case !ok:
		r.Waiting++
		if _, had := k.wasPinned[pin.Key(img)]; had {
			k.wasPinned[pin.Key(img)] = false
		}
	}
	return ok && err == nil
}

// stopped counts an image as waiting after the disk was full: further loads would fill what
// becomes free, and fail too.
func (k *Keeper) stopped(r *Result) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.Full != "" {
		r.Waiting++
	}
	return r.Full != ""
}

func (k *Keeper) load(ctx context.Context, img model.PinSetImage, src Source, r *Result) (bool, error) {
	// An image that others loaded under this name and digest only needs a name or a pin.
	if ok, err := k.pin(ctx, img); ok || err != nil {
		return ok, err
	}
	what, ok := src.Image(img)
	switch {
	case !ok && src.MayPull(img):
		return k.pull(ctx, img)
	case !ok:
		return false, nil
	}
	names, err := k.runtime.Load(ctx, what, src)
	if err != nil {
		return false, err
	}
	k.mu.Lock()
	if own, had := k.wasPinned[pin.Key(img)]; had {
		r.Restored = append(r.Restored, Restored{Image: img, FromLocalBlobs: own})
	}
	k.mu.Unlock()
	k.recordLoaded(img)
	return true, k.recordPins(img, names)
}

func (k *Keeper) pull(ctx context.Context, img model.PinSetImage) (bool, error) {
	puller, can := k.runtime.(Puller)
	if !can {
		return false, fmt.Errorf("image %s: refit cannot make this node's runtime pull from a registry; put the image into a bundle", img.Name)
	}
	names, err := puller.Pull(ctx, containerd.Image{Name: img.Name, Digest: img.Digest, Here: img.Kubelet})
	if errors.Is(err, containerd.ErrNotHere) {
		return false, nil // wait for it, as for blobs that are still to come
	}
	if err != nil {
		return false, err
	}
	return true, k.recordPins(img, names)
}

func (k *Keeper) pin(ctx context.Context, img model.PinSetImage) (bool, error) {
	names, ok, err := k.runtime.Pin(ctx, containerd.Image{Name: img.Name, Digest: img.Digest})
	if !ok || err != nil {
		return ok, err
	}
	return true, k.recordPins(img, names)
}

func (k *Keeper) recordPins(img model.PinSetImage, names []string) error {
	failpoint.Here(failpoint.PinRecord)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wasPinned[pin.Key(img)] = true
	if slices.Equal(k.own[pin.Key(img)], names) {
		return nil
	}
	k.own[pin.Key(img)] = names
	return k.saveRecord()
}

func (k *Keeper) release(ctx context.Context, d pin.Decision) error {
	if len(d.Release) == 0 {
		return nil
	}
	// Unpin first, then forget: a crash between the two unpins again.
	if err := k.runtime.Unpin(ctx, d.Unpin); err != nil {
		return err
	}
	k.mu.Lock()
	for _, key := range d.Release {
		delete(k.own, key)
		delete(k.wasPinned, key)
	}
	k.mu.Unlock()
	return k.saveRecord()
}

// saveRecord writes the record. A full disk keeps no image from being pinned: the record
// stays in memory and is written when there is free space.
func (k *Keeper) saveRecord() error {
	b, err := json.MarshalIndent(k.own, "", " ")
	if err != nil {
		return fmt.Errorf("record of pins: %w", err)
	}
	err = fsutil.WriteFile(k.path, b, 0o600)
	switch {
	case err != nil && !k.unsaved:
		k.report(statefile.NotWritable(k.path, err))
	case err == nil && k.unsaved:
		k.report(statefile.WrittenAgain(k.path))
	}
	k.unsaved = err != nil
	return nil
}

// presentTries is how often CRI is asked: it learns of new names by events, some hundred
// milliseconds later.
const presentTries = 20

// preparedPresentTries are those of a runtime that must read its configuration first, which
// takes seconds on a busy node. An early report that pins are ignored would stop an update.
const preparedPresentTries = 300

func (k *Keeper) awaitPresent(ctx context.Context, want []model.PinSetImage, r Result) (Result, error) {
	tries := presentTries
	if _, ok := k.runtime.(Preparer); ok {
		tries = preparedPresentTries
	}
	for try := range tries {
		have, err := k.runtime.Present(ctx)
		if err != nil {
			return r, err
		}
		d := pin.Decide(want, have, k.own)
		r.Held, r.Pinned, r.Fetched = d.Loaded, d.Pinned, d.Fetched
		if len(d.Load)-r.Waiting-len(r.Failed) <= 0 && len(d.Pin) == 0 || try == tries-1 {
			break
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return r, nil
}

// ReleaseAll releases every pin that refit made.
func (k *Keeper) ReleaseAll(ctx context.Context) error {
	if err := k.recoverPins(ctx); err != nil {
		return err
	}
	return k.release(ctx, pin.Decide(nil, nil, k.own))
}
