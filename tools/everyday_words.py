"""Make `attnbook/data/sentence.npz`, the word vectors of the first page's line.

    python -m tools.everyday_words

The model is that of chapter 19 (`tools/model.txt`), and of it only the table of word embeddings is
read. Kept are the first `COMMON` words of its vocabulary, which begins with the common ones, and
the words of `EVERYDAY`, which people use in a sentence of their own. Their rows are scaled to
length 1, the mean of the first `CENTRAL` and of `EVERYDAY` is subtracted, because it makes all
words alike, and they are scaled again. Of each row the 64 parts along the principal axes of these
words are kept, scaled to length 1, and rounded to multiples of 1/64, which 8 bits hold. These
words come first: the page names them alone as nearest ones, because rare words and plurals would
crowd them out. For each other word of the vocabulary the two nearest kept
ones are stored, so that the page can name them.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from attnbook import sentence, trained

COMMON = 12_000
CENTRAL = 3000
UNIT = 64  # a stored 1 is 1/64
# What a page need not suggest to anybody.
RUDE = """
anal arousal aroused ass asshole bastard bastards bitch bullshit clit cock crap crotch cum damn
damned dick dyke erotic fuck fucked fucking goddamn hitler hooker naked nazi nazis negro nipple
nipples nude orgasm panties penis piss pissed porn pornographic pornography prostitute prostitutes
prostitution pussy rape raped sex sexes sexual sexually sexy shit shitty slut tits whore
"""
EVERYDAY = """
algebra algorithm alphabet amazon android ankle ant antenna antennae apple arrow artificial asteroid
astronaut ate atom aunt backpack bacon baked baker bakery balloon banana bark barked bat bathroom
battery beard bee beef believes bible bicycle bike biology birthday bite bitter blanket boiled bolt
bolted bone boots bored boring boss bottle bow brave bread breakfast breaks browser brush buddha bug
builds burger butter butterfly button buys cabbage cabin cable cake calculus calendar camel candle
candy canyon carries carrot catcher catches cereal chased cheap cheese chef chemistry cherry chess
chicken chip chips chocolate cinema cinnamon classroom clever click clicked climb climbed cloud
cloudy cocktail coil coin comb comet context cook cooked cookie cooking cooks couch cough cousin cow
crab crane crawled cream cried crow cue curious cute cuts cutting daisy danced dances database debt
deck deer delicious demon dentist desert dessert detective devil diamond dice dies diploma dirty
dish divorce doll dolphin download drain drank drawer draws dreamed drill drinks drone drought drum
duck dull dwarf eagle ears earthquake eaten eating eats egg elbow electricity electron elephant elf
email envelope equation exam excited exciting expensive experiment eyebrow facebook fairy fan farmer
feather feels fever fig fishing flew flood flower fog folder forgot fork friday fridge fried frog
fruit funeral funny galaxy garlic geometry ghost gift glacier glove gloves goat goblin goodbye
google goose gradient graduation grandfather grandmother grape grass gravity grocery grows guilty
guitarist gym hail ham hamburger hammer handcuffs handsome hat hated hates headache hears heaven
hello helmet hen hi hid hides hike hiking holiday homework honest honey hopes hugged hungry
hurricane inflation inning insect intelligent investor iphone jacket jaguar jail jam java jealous
jeans jewel jogging jug juice jumped jumps jungle jury kangaroo kettle keyboard keys kick kicked
kicks kidney kindergarten kitten knee knitting laboratory lamp laptop laser lawn lazy leaf learns
lecture lemon leopard lesson licked lifts lightning likes lily lion liver lizard lobster log logged
lonely loses loves luggage lumber lunch lung lungs mail marathon math mathematics matrix meat meteor
microsoft microwave midnight milk mint mist mole molecule monday monk monkey monster moonlight
mortgage mosque mosquito mouse movies mug murderer muscle mushroom mustache nail nails necklace
needle nervous nest netflix neural neurons neutron noisy noodles noon nun nurse octopus ok onion
organ oven owl paint paints pajamas parrot passport password pasta patient paw peach peanut pear pen
pencil penguin pepper photo photon physics pie pig pigeon pill pillow pipe pirate pitch pitcher
pizza plug podcast poem polite pond pork potato poured pray prayer printer probability proof proton
proud puck pulls pumpkin punch punched pupil puppy purple purse pushes puzzle python quantum
quarterback query rabbi rabbit radar rainbow rainy rat reads recipe remembers remote repair repaired
rice robber robot robots rocket rotten rough rude sad sailor salary salt sand sandwich sang
satellite sauce sausage scared scarf scholarship scratched screw seal seed sees sells sentence
server sewing shallow shares shark sheep shoe shoes shovel shower shy silicon silly sings sink skate
skating ski skiing skirt sleeping sleeps slept smart smartphone smelled smells smoke smooth snake
soap sock soda sofa soil soup sour spade spaghetti spicy spider spoon spy squirrel stamp statistics
steals stole stolen strawberry studying sugar suitcase sung sunglasses sunny sunrise sunset
supermarket surf surfing surgeon surgery swam swamp sweater swim swimmer swimming tablet tail talked
talks tap tasted tastes taxi tea teaches telescope tent theorem thief thinks thirsty thread thrown
throws thumb thunder thursday ticket tiger tired toast tobacco toe token tomato tooth tornado
tourist towel toy treasure trick troll trousers trumpet trunk tuesday turquoise turtle twitter ugly
umbrella umpire understands vacation vaccine vanilla vector videos violet violin virus vodka volcano
voltage waiter waitress wakes walks wallet washed watches watered waterfall wednesday whale whiskey
wished wishes witch witness wizard woke wrist writes yesterday yoga zebra zipper
"""


def table() -> tuple[list[str], np.ndarray]:
    """Return the plain words of the model's vocabulary in its order, and their rows of length 1."""
    folder = Path(trained.minilm()["pretrained_model_name_or_path"])
    stored = load_file(folder / "model.safetensors")["embeddings.word_embeddings.weight"]
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    plain = [
        place for place, word in enumerate(vocabulary)
        if re.fullmatch("[a-z]{2,}|a|i", word) and word not in RUDE.split()
    ]
    rows = stored[plain].astype(np.float64)
    return [vocabulary[place] for place in plain], rows / np.linalg.norm(rows, axis=1)[:, None]


def made(words: list[str], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return what is stored, by name."""
    places = {word: place for place, word in enumerate(words)}
    named = [*words[:CENTRAL], *EVERYDAY.split()]
    central, kept = (
        [places[word] for word in dict.fromkeys(some)] for some in (named, named + words[:COMMON])
    )
    other = sorted(set(range(len(words))) - set(kept), key=words.__getitem__)
    centred = rows - rows[central].mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1)[:, None]
    axes = np.linalg.svd(centred[central], full_matrices=False)[2][:sentence.D_K]
    short = centred[kept] @ axes.T
    short /= np.linalg.norm(short, axis=1)[:, None]
    nearest = (-centred[other] @ centred[kept].T).argsort(axis=1)[:, :2]
    return {
        "named": np.array(len(central)),
        "words": np.array([words[place] for place in kept]),
        "rows": np.round(UNIT * short).astype(np.int8),
        "others": np.array([words[place] for place in other]),
        "nearest": nearest.astype(np.uint16),
    }


if __name__ == "__main__":
    np.savez_compressed(sentence.STORED, allow_pickle=False, **made(*table()))
    print(f"{len(sentence.known())} words")
