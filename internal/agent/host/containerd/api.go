package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	diffapi "github.com/containerd/containerd/api/services/diff/v1"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/dialer"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// connectTime bounds one try to connect, and the pause before the next one.
const connectTime = 5 * time.Second

// maxMessage is containerd's limit for one message, in bytes.
const maxMessage = 16 << 20

// runtimeAPI is the part of containerd's API that this package needs, in one namespace.
// containerd's own client has all of it, and its dependencies.
type runtimeAPI struct {
	conn      *grpc.ClientConn
	content   contentStore
	images    imageStore
	leases    leasesapi.LeasesClient
	snapshots snapshotsapi.SnapshotsClient
	diff      diffapi.DiffClient
	events    eventsapi.EventsClient
}

// openAPI prepares a connection; it connects when it is first used.
func openAPI(socket string) (*runtimeAPI, error) {
	retry := backoff.DefaultConfig
	retry.MaxDelay = connectTime
	conn, err := grpc.NewClient(dialer.DialAddress(socket),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: connectTime}),
		grpc.WithContextDialer(dialer.ContextDialer), // waits for the socket of a runtime that starts
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithUnaryInterceptor(callInNamespace), grpc.WithStreamInterceptor(streamInNamespace))
	if err != nil {
		return nil, err
	}
	return &runtimeAPI{conn: conn,
		content: contentStore{contentapi.NewContentClient(conn)}, images: imageStore{imagesapi.NewImagesClient(conn)},
		leases: leasesapi.NewLeasesClient(conn), snapshots: snapshotsapi.NewSnapshotsClient(conn),
		diff: diffapi.NewDiffClient(conn), events: eventsapi.NewEventsClient(conn)}, nil
}

func (a *runtimeAPI) close() error { return a.conn.Close() }

// withNamespace marks a call for the namespace of the kubelet's images.
func withNamespace(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", Namespace)
}

func callInNamespace(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return nativeError(call(withNamespace(ctx), method, req, reply, conn, opts...))
}

func streamInNamespace(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(withNamespace(ctx), desc, conn, method, opts...)
	return s, nativeError(err)
}

// withLease keeps what is written or found from here on from the runtime's garbage collector
// until done is called, at most for a time.
func (a *runtimeAPI) withLease(ctx context.Context, most time.Duration) (leased context.Context, done func(), err error) {
	var l leases.Lease
	for _, set := range []leases.Opt{leases.WithRandomID(), leases.WithExpiration(most)} {
		if err := set(&l); err != nil {
			return nil, nil, err
		}
	}
	if _, err := a.leases.Create(ctx, &leasesapi.CreateRequest{ID: l.ID, Labels: l.Labels}); err != nil {
		return nil, nil, fmt.Errorf("lease: %w", err)
	}
	done = func() { // the runtime ends a lease that stays at its time
		_, _ = a.leases.Delete(context.WithoutCancel(ctx), &leasesapi.DeleteRequest{ID: l.ID})
	}
	return leases.WithLease(ctx, l.ID), done, nil
}

// hasSnapshot reports whether layers are there as files.
func (a *runtimeAPI) hasSnapshot(ctx context.Context, snapshotter, key string) (bool, error) {
	_, err := a.snapshots.Stat(ctx, &snapshotsapi.StatSnapshotRequest{Snapshotter: snapshotter, Key: key})
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// subscribe passes the runtime's events that match a filter until the runtime or the context ends.
func (a *runtimeAPI) subscribe(ctx context.Context, filter string, got func()) error {
	s, err := a.events.Subscribe(ctx, &eventsapi.SubscribeRequest{Filters: []string{filter}})
	for err == nil {
		if _, err = s.Recv(); err == nil {
			got()
		}
	}
	return nativeError(err)
}

// answerError is an error of the runtime, with the kind that errdefs compares.
type answerError struct {
	message string
	kind    error
}

func (e answerError) Error() string { return e.message }
func (e answerError) Unwrap() error { return e.kind }

// kinds are the meanings of a call's code.
var kinds = map[codes.Code]error{
	codes.InvalidArgument:    errdefs.ErrInvalidArgument,
	codes.AlreadyExists:      errdefs.ErrAlreadyExists,
	codes.NotFound:           errdefs.ErrNotFound,
	codes.Unavailable:        errdefs.ErrUnavailable,
	codes.FailedPrecondition: errdefs.ErrFailedPrecondition,
	codes.Unimplemented:      errdefs.ErrNotImplemented,
	codes.Aborted:            errdefs.ErrAborted,
	codes.Unauthenticated:    errdefs.ErrUnauthenticated,
	codes.PermissionDenied:   errdefs.ErrPermissionDenied,
	codes.ResourceExhausted:  errdefs.ErrResourceExhausted,
	codes.OutOfRange:         errdefs.ErrOutOfRange,
	codes.DataLoss:           errdefs.ErrDataLoss,
	codes.Internal:           errdefs.ErrInternal,
	codes.Canceled:           context.Canceled,
	codes.DeadlineExceeded:   context.DeadlineExceeded,
}

// nativeError is the error of a call with its kind, without the words of the transport.
func nativeError(err error) error {
	if err == nil || errors.As(err, &answerError{}) {
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		return err // for example the end of a stream
	}
	kind := kinds[s.Code()]
	if kind == nil {
		kind = errdefs.ErrUnknown
	}
	return answerError{s.Message(), kind}
}

// descriptorTo is a descriptor as the API takes it.
func descriptorTo(d ocispec.Descriptor) *types.Descriptor {
	return &types.Descriptor{MediaType: d.MediaType, Digest: d.Digest.String(), Size: d.Size, Annotations: d.Annotations}
}
