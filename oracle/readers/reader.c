/* Ask an attention in C the plain cases that `python -m attncheck --export` wrote.

   cc -O2 -o reader reader.c -lm && ./reader cases.safetensors cases.safetensors.txt

   It prints the ids of the cases that fail. attncheck/EXPORT.md says what is in both files. Asked
   are the plain calls in float32: no mask, no keywords but is_causal and scale, no broadcasting.
   -DWRONG_CORNER makes the causal mask end at the last key, which is wrong unless L = S. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

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

int main(int count, char **words) {
    struct stat about;
    int file = count == 3 ? open(words[1], O_RDONLY) : -1, is_causal, asked = 0, failed = 0;
    FILE *lines = count == 3 ? fopen(words[2], "r") : NULL;
    if (!lines || fstat(file, &about)) return fprintf(stderr, "usage: reader FILE FILE.txt\n"), 2;
    const char *numbers = mmap(NULL, about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (numbers == MAP_FAILED) return perror(words[1]), 2;
    char dtype[16], id[256];
    long heads, L, S, E, E_v, query, key, value, expected, bound; /* the last five in bytes */
    float scale;
    for (int c = 0; c != EOF && c != '\n';) c = getc(lines); /* the names of the columns */
    while (fscanf(lines, "%15s %ld %ld %ld %ld %ld %d %f %ld %ld %ld %ld %ld %255s", dtype, &heads,
                  &L, &S, &E, &E_v, &is_causal, &scale, &query, &key, &value, &expected, &bound,
                  id) == 14) {
        if (strcmp(dtype, "float32")) continue;
        const float *q = (const float *)(numbers + query), *k = (const float *)(numbers + key);
        const float *v = (const float *)(numbers + value);
        const double *t = (const double *)(numbers + expected);
        const double *b = (const double *)(numbers + bound);
        float *out = malloc((heads * L * E_v + 1) * sizeof *out);
        for (long h = 0; h < heads; h++)
            attention(q + h * L * E, k + h * S * E, v + h * S * E_v, out + h * L * E_v, L, S, E,
                      E_v, is_causal, scale);
        int right = 1;
        for (long i = 0; i < heads * L * E_v; i++)
            right &= out[i] == t[i] || (isnan(out[i]) && isnan(t[i])) ||
                     (isfinite(t[i]) && fabs(out[i] - t[i]) <= b[i]);
        if (!right) puts(id);
        asked++, failed += !right;
        free(out);
    }
    printf("%d asked, %d failed\n", asked, failed);
    return failed > 0 || !asked;
}
