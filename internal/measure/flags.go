package measure

import (
	"encoding/binary"
	"fmt"
	"time"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/kernels"
)

const (
	// chainSize is the memory that dependent loads walk over, and chainLoads how
	// many one SM does: fewer than the chain has links, so that no cache of the SM
	// has seen any.
	chainSize  = 2 << 20
	chainLoads = 4096
	// pingPongs are the round trips of one sample of the flag latency.
	pingPongs = 2000
	// A handshake hands over this many words, this many times.
	handshakeWords  = 2048
	handshakeRounds = 200
	// exchangeTime bounds the time that a kernel waits for flags.
	exchangeTime = 5 * time.Second
	// tinyCopy is the size of the copies of the issue rate.
	tinyCopy = 16
	// atomicThreads threads add 1 atomicAdds times each.
	atomicThreads, atomicAdds = 256, 100
)

// latencies measures what one load, one exchange of flags and one tiny copy
// cost.
func (p *pairProbe) latencies() error {
	if err := p.loadLatency(Read, p.initiator, p.theirs[0]); err != nil {
		return err
	}
	if p.back {
		if err := p.flagLatency(); err != nil {
			return err
		}
	}
	w := p.path(Write, CE)
	w.size = tinyCopy
	p.begin(fmt.Sprintf("%s: issue rate", w))
	f, err := p.initiator.flow(w.issue)
	if err != nil {
		return err
	}
	race, err := p.race(f)
	if err != nil {
		return err
	}
	timings, copies, err := race.sample()
	if err != nil {
		return err
	}
	m := Measurement{Quantity: IssueRate, Direction: Write, Method: CE, Unit: PerSecond, Size: tinyCopy, Copies: copies}
	for _, t := range of(timings, 0) {
		m.Samples = append(m.Samples, float64(copies)/t.Seconds())
	}
	m.Summary = Summarise(m.Samples)
	p.add(m)
	return nil
}

// loadLatency measures that of loads of the party p from memory b. Each sample is
// the mean of some multiprocessors, all samples together have had them all: those
// near the port of the link are faster than others.
func (r *run) loadLatency(d Direction, p *party, b *buffer) error {
	size := min(chainSize, b.size)
	r.begin(fmt.Sprintf("%s: load latency", d))
	h, err := b.owner.allocHost(size)
	if err != nil {
		return err
	}
	// Host memory gets the chain from the GPU too: what a CPU wrote last would come
	// out of that CPU's cache.
	kernels.Chain(h.Bytes, b.ptr)
	if err := b.owner.stream.Copy(b.ptr, h.Ptr, size); err != nil {
		return err
	}
	if err := b.owner.wait(); err != nil {
		return err
	}
	loads := int(min(chainLoads, size/kernels.ChainStride))
	m := Measurement{Quantity: LoadLatency, Direction: d, Method: SM, Unit: Nanoseconds, Size: size, Copies: loads}
	for i := -1; i < r.settings.Samples; i++ { // the first is a warm-up
		var total time.Duration
		var n int
		for block := max(i, 0); block < p.sms || n == 0; block += r.settings.Samples {
			t, err := p.chase(b.ptr, size, loads, block%p.sms)
			if err != nil {
				return fmt.Errorf("%s: %w", d, err)
			}
			total += t
			n++
		}
		if i >= 0 {
			m.Samples = append(m.Samples, float64(total)/float64(n*loads))
		}
	}
	m.Summary = Summarise(m.Samples)
	r.add(m)
	return nil
}

// chase follows a chain with one SM and returns the GPU time of it.
func (p *party) chase(start cuda.Ptr, size int64, loads, block int) (time.Duration, error) {
	if err := p.code.Chase(p.stream, p.slot, start, loads, block, false); err != nil {
		return 0, err
	}
	if err := p.wait(); err != nil {
		return 0, err
	}
	if got, want := p.slot.Chased().End, kernels.ChainEnd(start, size, loads); got != want {
		return 0, fmt.Errorf("%d dependent loads from %#x led to %#x instead of %#x", loads, start, got, want)
	}
	return p.slot.Elapsed()
}

// flags returns a page of the party's memory, zeroed by its owner.
func (p *party) flags() (*buffer, error) {
	b, err := p.buffer(windowAlign)
	if err != nil {
		return nil, err
	}
	if err := p.stream.Fill(b.ptr, 0, b.size); err != nil {
		return nil, err
	}
	return b, p.wait()
}

// flagLatency measures the round trip of a flag: each side polls its own memory
// and writes the other's.
func (p *pairProbe) flagLatency() error {
	p.begin("flag latency")
	m := Measurement{Quantity: FlagLatency, Direction: Write, Method: SM, Unit: Nanoseconds, Size: 4, Copies: pingPongs}
	for i := -1; i < p.settings.Samples; i++ { // the first is a warm-up
		mine, err := p.initiator.flags()
		if err != nil {
			return err
		}
		theirs, err := p.peer.flags()
		if err != nil {
			return err
		}
		a, b := p.initiator, p.peer
		if err := b.code.PingPong(b.stream, b.slot, theirs.ptr, mine.ptr, pingPongs, false, exchangeTime); err != nil {
			return err
		}
		if err := a.code.PingPong(a.stream, a.slot, mine.ptr, theirs.ptr, pingPongs, true, exchangeTime); err != nil {
			return err
		}
		if err := p.wait(a.stream, b.stream); err != nil {
			return err
		}
		sent, answered := a.slot.Exchanged(), b.slot.Exchanged()
		if sent.TimedOut || answered.TimedOut {
			// An answer that was lost is the business of the other order of the pair.
			if answered.Rounds <= sent.Rounds {
				*p.checks = append(*p.checks, Check{
					Direction: Write, Method: SM, Phase: Handshake, Reader: BySM, Lost: int64(max(pingPongs-answered.Rounds, 1)),
				})
			}
			return nil
		}
		if i >= 0 {
			m.Samples = append(m.Samples, float64(sent.Elapsed)/pingPongs)
		}
	}
	m.Summary = Summarise(m.Samples)
	p.add(m)
	return nil
}

// handshakes verifies data that is announced by a flag: the initiator's stores
// into the peer's memory, and its loads of what the peer stored there itself.
// Copies can be right where this is not: they end before anybody looks.
func (p *pairProbe) handshakes() error {
	for _, d := range []Direction{Write, Read} {
		p.begin(fmt.Sprintf("%s by %s: data announced by a flag", d, SM))
		if err := p.unclocked(func() error { return p.handshake(d) }); err != nil {
			return err
		}
	}
	return nil
}

func (p *pairProbe) handshake(d Direction) error {
	flag, err := p.peer.flags()
	if err != nil {
		return err
	}
	// The answer goes through the host's memory, so that it tells nothing about
	// the way back.
	ack, err := p.initiator.allocHost(windowAlign)
	if err != nil {
		return err
	}
	clear(ack.Bytes)
	words := min(handshakeWords, p.settings.Size/wordSize)
	c := kernels.Channel{
		Data: p.theirs[0].ptr, Flag: flag.ptr, Ack: ack.Ptr, Words: int(words), Rounds: handshakeRounds,
		Seed: newPattern(p.settings.Seed, p.pair.Initiator, p.pair.Peer, d, SM, Handshake).Key,
	}
	producer, consumer := p.initiator, p.peer
	if d == Read {
		producer, consumer = p.peer, p.initiator
	}
	began := time.Now()
	if err := consumer.code.Consume(consumer.stream, consumer.slot, c, exchangeTime); err != nil {
		return err
	}
	if err := producer.code.Produce(producer.stream, producer.slot, c, exchangeTime); err != nil {
		return err
	}
	if err := p.wait(producer.stream, consumer.stream); err != nil {
		return err
	}
	got, sent := consumer.slot.Exchanged(), producer.slot.Exchanged()
	check := Check{
		Direction: d, Method: SM, Phase: Handshake, Reader: BySM, Seconds: time.Since(began).Seconds(),
		Bytes: int64(got.Rounds) * words * wordSize, Wrong: got.Wrong,
	}
	if got.TimedOut || sent.TimedOut {
		check.Lost = int64(max(handshakeRounds-min(got.Rounds, sent.Rounds), 1))
	}
	*p.checks = append(*p.checks, check)
	return nil
}

// stepAtomics is the step whose failure says nothing about the pair: over PCIe
// there may be no atomics, and that may be an error.
const stepAtomics = "atomics"

// atomics lets both GPUs add to one word of the peer's memory at the same time.
// As it may break the contexts, it comes last.
func (p *pairProbe) atomics() error {
	word, err := p.peer.flags()
	if err != nil {
		return err
	}
	a := &Atomics{Offered: p.pair.Attributes.NativeAtomics, Want: 2 * atomicThreads * atomicAdds, Error: "did not end"}
	p.pair.Atomics = a
	p.begin(stepAtomics)
	got, err := p.addTogether(word)
	switch {
	case p.context.Err() != nil:
		return err // it hangs
	case err != nil:
		a.Error = err.Error()
		p.undo = nil // nothing can be freed in a context that an error has broken
	default:
		a.Got, a.Error = got, ""
	}
	return nil
}

// addTogether returns what the owner finds in word.
func (p *pairProbe) addTogether(word *buffer) (got uint64, err error) {
	for _, side := range []*party{p.peer, p.initiator} {
		if err := side.code.Atomics(side.stream, side.slot, word.ptr, atomicThreads, atomicAdds); err != nil {
			return 0, err
		}
	}
	if err := p.wait(p.peer.stream, p.initiator.stream); err != nil {
		return 0, err
	}
	err = word.download([]Window{{0, wordSize}}, func(_ Window, b []byte) { got = binary.LittleEndian.Uint64(b) })
	return got, err
}
