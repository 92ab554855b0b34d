/**
 * Gives a buffer's memory back at once, and not when the collector comes: buffers lie outside of the heap, so that a stream of
 * them has the collector look through all of the heap again and again. Only for one whose memory is nobody else's, as what
 * ciphers and zlib's synchronous calls give; nobody may use it afterwards.
 */
export function release(bytes: Buffer): void {
  const { buffer } = bytes;
  // A small one may lie in the pool that Node shares among many.
  const isOwn = buffer.byteLength === bytes.length || buffer.byteLength > 2 * Buffer.poolSize;
  if (isOwn && bytes.length > 0 && buffer instanceof ArrayBuffer) buffer.transfer(0);
}
