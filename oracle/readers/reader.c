/* Ask an attention in C the plain cases of a file that `python -m attncheck --export` wrote.

   cc -O2 -o reader reader.c -lm && ./reader cases.safetensors

   It prints the ids of the cases that fail. attncheck/EXPORT.md says what is in the file. Asked are
   the plain calls in float32: no mask, no keywords but is_causal and scale, no broadcasting.
   -DWRONG_CORNER makes the causal mask end at the last key, which is wrong unless L = S. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

typedef struct { const void *numbers; long shape[8], rank, rows; } Array; /* rows: all but 2 axes */

static const char *header, *numbers;

/* Put the array of this name into `own`; return 0 if the file has none. */
static int array(const char *id, int n, const char *name, const char *dtype, Array *own) {
    char word[512];
    snprintf(word, sizeof word, "\"%.*s/%s\":{\"dtype\":\"%s\",\"shape\":[", n, id, name, dtype);
    const char *at = strstr(header, word);
    if (!at) return 0;
    at += strlen(word), own->rank = 0, own->rows = 1;
    for (; *at != ']'; at += *at == ',') own->shape[own->rank++] = strtol(at, (char **)&at, 10);
    for (int i = 0; i < own->rank - 2; i++) own->rows *= own->shape[i];
    own->numbers = numbers + strtol(strchr(at + 1, '[') + 1, NULL, 10);
    return 1;
}

/* The kernel: softmax(scale * Q K^T) V of one head. Put your own here. */
static void attention(const float *q, const float *k, const float *v, float *out, long L, long S,
                      long E, long E_v, int is_causal, float scale) {
    float *p = malloc((S + 1) * sizeof *p);
    for (long i = 0; i < L; i++) {
        long last = is_causal ? i : S - 1; /* the last key that query i sees */
#ifdef WRONG_CORNER
        if (is_causal) last = i + S - L;
#endif
        long n = last + 1 < S ? last + 1 : S;
        float largest = -INFINITY, sum = 0;
        for (long j = 0; j < n; j++) {
            p[j] = 0;
            for (long c = 0; c < E; c++) p[j] += q[i * E + c] * k[j * E + c];
            largest = fmaxf(largest, p[j] *= scale);
        }
        for (long j = 0; j < n; j++) sum += p[j] = expf(p[j] - largest);
        for (long c = 0; c < E_v; c++) {
            float total = 0;
            for (long j = 0; j < n; j++) total += p[j] / sum * v[j * E_v + c];
            out[i * E_v + c] = total;
        }
    }
    free(p);
}

/* Return whether a case passes; -1 if it is not asked. */
static int passes(const char *id, int n, const char *said, const char *end) {
    Array q, k, v, truth, bound;
    const char *plain = strstr(said, "\\\"plain\\\":true"), *causal, *scale;
    if (!plain || plain > end || !array(id, n, "query", "F32", &q)) return -1;
    if (!array(id, n, "key", "F32", &k) || !array(id, n, "value", "F32", &v) ||
        !array(id, n, "expected/output", "F64", &truth) ||
        !array(id, n, "bound/output", "F64", &bound))
        return fprintf(stderr, "%.*s lacks an array\n", n, id), 0;
    causal = strstr(said, "\\\"is_causal\\\":true"), scale = strstr(said, "\\\"scale\\\":");
    long L = q.shape[q.rank - 2], E = q.shape[q.rank - 1], S = k.shape[k.rank - 2];
    long E_v = v.shape[v.rank - 1], size = q.rows * L * E_v;
    float factor = scale && scale < end ? strtof(scale + 10, NULL) : E ? 1 / sqrtf(E) : 1;
    float *out = malloc((size + 1) * sizeof *out);
    for (long r = 0; r < q.rows; r++)
        attention((const float *)q.numbers + r * L * E, (const float *)k.numbers + r * S * E,
                  (const float *)v.numbers + r * S * E_v, out + r * L * E_v, L, S, E, E_v,
                  causal && causal < end, factor);
    const double *t = truth.numbers, *b = bound.numbers;
    int right = 1;
    for (long i = 0; i < size; i++) {
        int same = out[i] == t[i] || (isnan(out[i]) && isnan(t[i]));
        right &= same || (isfinite(t[i]) && fabs(out[i] - t[i]) <= b[i]);
    }
    free(out);
    return right;
}

int main(int count, char **words) {
    struct stat about;
    int file = count == 2 ? open(words[1], O_RDONLY) : -1, asked = 0, failed = 0;
    if (file < 0 || fstat(file, &about)) return fprintf(stderr, "usage: reader FILE\n"), 2;
    const char *all = mmap(NULL, about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (all == MAP_FAILED) return perror(words[1]), 2;
    long length = *(const long *)all; /* of the header, on a little-endian machine */
    header = strndup(all + 8, length), numbers = all + 8 + length;
    /* The metadata has the ids, each with a text in which quotes are escaped: "id":"{...}". */
    for (const char *at = header; (at = strstr(at, "\":\"{")); at++) {
        const char *id = at;
        while (id[-1] != '"') id--;
        int right = passes(id, at - id, at + 3, strstr(at, "}\""));
        asked += right >= 0, failed += right == 0;
        if (right == 0) printf("%.*s\n", (int)(at - id), id);
    }
    printf("%d asked, %d failed\n", asked, failed);
    return failed > 0 || !asked;
}
