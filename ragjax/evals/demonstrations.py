"""Five demonstrations a dataset: questions and answers in its manner, without contexts, written for this project.

They show a reader how long an answer is, and nothing else. None is taken from a dataset. FaviComp's readers see five of
the authors' own (appendix C of the paper).
"""

Demonstrations = tuple[tuple[str, str], ...]
"""(question, answer) pairs, in the order in which a reader sees them."""

DEMONSTRATIONS: dict[str, Demonstrations] = {
    "nq": (
        ("what is the metal that is liquid at room temperature", "Mercury"),
        ("how many strings are there on a standard violin", "four"),
        ("who built the first working steam locomotive", "Richard Trevithick"),
        ("where does the river danube end", "the Black Sea"),
        ("when did the channel tunnel open to the public", "1994"),
    ),
    "triviaqa": (
        ("Which planet of the solar system has the moon Titan?", "Saturn"),
        ("The Bay of Fundy, famous for its tides, lies in which country?", "Canada"),
        ("What instrument measures the pressure of the air?", "Barometer"),
        ("Which chess piece alone may jump over others?", "The knight"),
        ("In which city would you cross the bridge called Ponte Vecchio?", "Florence"),
    ),
    "hotpotqa": (
        ("Which is longer, the river that flows through Vienna or the one that flows through London?", "the Danube"),
        ("Are the tuba and the bassoon both brass instruments?", "no"),
        ("In what country was the composer of the opera Rusalka born?", "Bohemia"),
        ("What sea lies beside the city where the painter Joaquín Sorolla was born?", "the Mediterranean Sea"),
        ("Were Johannes Kepler and Tycho Brahe both astronomers?", "yes"),
    ),
    "2wikimultihopqa": (
        ("Who is the father of the composer of The Blue Danube?", "Johann Strauss I"),
        ("Which city was founded first, Saint Petersburg or Brasília?", "Saint Petersburg"),
        ("Do the rivers Loire and Ebro flow through the same country?", "no"),
        ("Where was the wife of Pierre Curie born?", "Warsaw"),
        ("Who died first, Antonio Vivaldi or Georg Philipp Telemann?", "Antonio Vivaldi"),
    ),
    "musique": (
        ("What is the currency of the country whose capital lies on the island of Zealand?", "Danish krone"),
        ("What ocean borders the country where the port of Valparaíso lies?", "the Pacific Ocean"),
        ("On which continent lies the country whose capital is Windhoek?", "Africa"),
        ("Into which sea flows the river on which the capital of Saxony lies?", "the North Sea"),
        ("What range separates the country of Perpignan from that of Girona?", "the Pyrenees"),
    ),
    "asqa": (
        ("How high is the tower of Pisa?", "55.9 m on the low side, 56.7 m on the high one"),
        ("When was the Suez Canal opened?", "1869, and its second lane in 2015"),
        ("Who first reached a pole of the Earth?", "Roald Amundsen (South Pole, 1911)"),
        ("What is the capital of the Netherlands?", "Amsterdam; the government sits in The Hague"),
        ("How many players are on a rugby team?", "15 in rugby union, 13 in rugby league"),
    ),
    "qasper": (
        ("How many annotators labelled each sentence?", "three"),
        ("Is the code released?", "Yes"),
        ("Which languages does the corpus cover?", "Finnish, Estonian"),
        ("What do they compare their tagger with?", "a conditional random field with hand-made features"),
        ("How much does pre-training cost in GPU hours?", "Unanswerable"),
    ),
}
NUMBER = 5
"""How many there are for each dataset."""


def demonstrations(dataset: str, number: int = NUMBER) -> Demonstrations:
    """The first `number` demonstrations of a dataset.

    Raises ValueError for an unknown one, or for more than `NUMBER`.
    """
    if dataset not in DEMONSTRATIONS:
        raise ValueError(f"no demonstrations for the dataset {dataset!r}; there are {', '.join(DEMONSTRATIONS)}")
    if not 0 <= number <= NUMBER:
        raise ValueError(f"there are {NUMBER} demonstrations a dataset, asked for {number}")
    return DEMONSTRATIONS[dataset][:number]
