package manage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// Remote is the Service of a page at a URL, which another process serves.
type Remote struct {
	address url.URL
	client  *http.Client
}

// NewRemote returns the Service of the page at an address. User and password in the address are
// sent as basic authentication.
func NewRemote(address string, client *http.Client) (*Remote, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, invalid("%q is not the address of a page, such as http://localhost:6060/jobs/",
			address)
	}
	u.RawQuery, u.Fragment = "", ""
	own := *client
	own.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		return fmt.Errorf("the page has moved to %s", r.URL.Redacted())
	}
	return &Remote{address: *u, client: &own}, nil
}

// Overview implements Service.
func (r *Remote) Overview(ctx context.Context, queue string) (*Overview, error) {
	return get[Overview](ctx, r, "queue", queue)
}

// Due implements Service.
func (r *Remote) Due(ctx context.Context, queue string) (*Due, error) {
	return get[Due](ctx, r, "show", "due", "queue", queue)
}

// Jobs implements Service.
func (r *Remote) Jobs(ctx context.Context, queue, state, after string, limit int) (*Jobs, error) {
	return get[Jobs](ctx, r, "queue", queue, "state", state, "after", after, "limit",
		strconv.Itoa(limit))
}

// Job implements Service.
func (r *Remote) Job(ctx context.Context, queue string, ref jobqueue.Ref) (*Job, error) {
	if ref.ID != 0 {
		return get[Job](ctx, r, "queue", queue, "id", ref.ID.String())
	}
	return get[Job](ctx, r, "queue", queue, "key", ref.Key)
}

// Do implements Service.
func (r *Remote) Do(ctx context.Context, a Action) (*Result, error) {
	body, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	return ask[Result](ctx, r, http.MethodPost, nil, bytes.NewReader(body))
}

// get asks for what the pairs of names and values in the query name. Empty values are left out.
func get[T any](ctx context.Context, r *Remote, pairs ...string) (*T, error) {
	query := url.Values{"format": {"json"}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return ask[T](ctx, r, http.MethodGet, query, nil)
}

func ask[T any](ctx context.Context, r *Remote, method string, query url.Values,
	body io.Reader) (*T, error) {
	address := r.address
	address.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, address.String(), body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := r.client.Do(request)
	if err != nil {
		var u *url.Error // its text has the whole address; the page's is enough
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("%s: %w", r.address.Redacted(), err)
	}
	defer answer.Body.Close()
	isJSON := false
	if kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type")); err == nil {
		isJSON = kind == "application/json"
	}
	if answer.StatusCode != http.StatusOK {
		var f Failure
		if isJSON && json.NewDecoder(answer.Body).Decode(&f) == nil && f.Message != "" {
			return nil, f.Err()
		}
		start, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return nil, fmt.Errorf("%s: %s: %s", r.address.Redacted(), answer.Status,
			Quote(strings.TrimSpace(string(start))))
	}
	v := new(T)
	if !isJSON {
		return nil, fmt.Errorf("%s is not the page of a job queue", r.address.Redacted())
	}
	if err := json.NewDecoder(answer.Body).Decode(v); err != nil {
		return nil, fmt.Errorf("%s: %w", r.address.Redacted(), err)
	}
	return v, nil
}
