// Package webhook posts due jobs to HTTP endpoints, signed as the Standard Webhooks specification
// says (https://www.standardwebhooks.com).
//
//	hooks, err := webhook.New(webhook.WithSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
//	q.Handle("orders/paid", hooks.To("https://example.com/hooks"), jobqueue.Workers(50))
//
// It is a handler, and not a Sink for Forward: each message has an answer of its own, so a slow
// endpoint delays one worker and no other message.
//
//	2xx                            the job is acknowledged
//	410 Gone                       the job is dead
//	429 or 503 with Retry-After    a failed attempt; the next is when the endpoint says
//	all else, a redirect included  a failed attempt
//
// An endpoint that cannot be reached is a failed attempt too: it may be gone for good, and the
// other endpoints are not.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-timingwheel/timingwheel/jobqueue"
)

// The headers of a message. A receiver should refuse a timestamp that is far from its own time, and
// drop an id that it has seen.
const (
	ID        = "Webhook-Id"        // the job's MessageID
	Timestamp = "Webhook-Timestamp" // of the attempt, in seconds since 1970
	Signature = "Webhook-Signature" // of the id, the timestamp and the body, by each secret
)

// longestWait bounds what a Retry-After may ask for.
const longestWait = 24 * time.Hour

// A Poster posts messages. It may be used for many endpoints.
type Poster struct {
	client  http.Client
	secrets [][]byte
	header  http.Header
	timeout time.Duration
}

// An Option changes what New makes.
type Option func(*Poster) error

// WithSecret has messages signed with a secret: the text whsec_ and 24 to 64 random bytes in
// base64. With two secrets each message has two signatures, so that a receiver can change from one
// to the other. Without a secret, messages have no signature.
func WithSecret(secret string) Option {
	return func(p *Poster) error {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			return errors.New("webhook: the secret is not base64") // err would show a part of it
		}
		if len(key) < 24 || len(key) > 64 {
			return fmt.Errorf("webhook: the secret has %d bytes, not 24 to 64", len(key))
		}
		p.secrets = append(p.secrets, key)
		return nil
	}
}

// WithHeader sets a header of each message. The default has a Content-Type of application/json.
func WithHeader(name, value string) Option {
	return func(p *Poster) error {
		p.header.Set(name, value)
		return nil
	}
}

// WithTimeout sets how long an endpoint may take for its answer, by default 15 s.
func WithTimeout(d time.Duration) Option {
	if d <= 0 {
		panic("webhook: WithTimeout of a duration that is not positive")
	}
	return func(p *Poster) error {
		p.timeout = d
		return nil
	}
}

// WithTransport sets how to connect. If the URLs are those of strangers, it is the place to refuse
// addresses of your own network.
func WithTransport(transport http.RoundTripper) Option {
	return func(p *Poster) error {
		p.client.Transport = transport
		return nil
	}
}

// New returns a Poster. It fails if a secret cannot be read.
func New(opts ...Option) (*Poster, error) {
	p := &Poster{
		client: http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		header:  http.Header{"Content-Type": {"application/json"}},
		timeout: 15 * time.Second,
	}
	for _, opt := range opts {
		if err := opt(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// To returns a handler that posts the bodies of jobs to an endpoint.
func (p *Poster) To(endpoint string) jobqueue.Handler {
	return func(ctx context.Context, job *jobqueue.Job) error {
		return p.Post(ctx, endpoint, job, job.Body)
	}
}

// Post makes one attempt at a job: it posts body to an endpoint. What it returns is for the job's
// Handler to return.
func (p *Poster) Post(ctx context.Context, endpoint string, job *jobqueue.Job, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return jobqueue.Bury("webhook: " + withoutURL(err).Error()) // it will not become better
	}
	req.Header = p.header.Clone()
	id, now := job.MessageID(), strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set(ID, id)
	req.Header.Set(Timestamp, now)
	if len(p.secrets) > 0 {
		req.Header.Set(Signature, p.sign(id, now, body))
	}
	resp, err := p.client.Do(req)
	if failed := (*url.Error)(nil); errors.As(err, &failed) && failed.Timeout() {
		return errors.New("webhook: no answer in time")
	} else if err != nil {
		return fmt.Errorf("webhook: %w", withoutURL(err))
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection is used again
	return judge(resp)
}

// withoutURL returns what went wrong without the URL, which may have a password in it.
func withoutURL(err error) error {
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// sign returns a signature by each secret.
func (p *Poster) sign(id, timestamp string, body []byte) string {
	var all []string
	for _, secret := range p.secrets {
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " ")
}

// judge returns what an answer means for the job.
func judge(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code >= 200 && code <= 299:
		return nil
	case code == http.StatusGone:
		return jobqueue.Bury("webhook: the receiver answered 410 Gone")
	}
	err := fmt.Errorf("webhook: the receiver answered %d %s",
		resp.StatusCode, http.StatusText(resp.StatusCode))
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if wait, ok := retryAfter(resp.Header.Get("Retry-After")); ok {
			return fmt.Errorf("%w: %w", err, jobqueue.RetryIn(wait))
		}
	}
	return err
}

// retryAfter reads a number of seconds or a date.
func retryAfter(text string) (wait time.Duration, ok bool) {
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, longestWait), true
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), longestWait), true
	}
	return 0, false
}
